/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An interface's end of a link from another box: delivers messages, and writes
 * what the sender gets, by keys of this process.
 */
#pragma once

#include "uct/gaudi/ipc/boxes/box_link.h"
#include "uct/gaudi/ipc/boxes/box_server.h"
#include "uct/gaudi/ipc/serving/served_ports.h"

#include <array>
#include <chrono>
#include <cstring>

namespace gaudi::ipc {

class box_receiver final : public box_link {
public:
    /** Of somebody who knocks. @param longest  Bytes of a message. */
    box_receiver(box_server &server, base::card &by, int events,
                 uint64_t secret, size_t longest)
        : box_link(by, events, secret, longest), server_(server)
    {}

    using box_link::take_socket;

    /** Says goodbye; once it is idle. */
    ~box_receiver();

    /** Whether it has not shown that it knows the secret. */
    [[nodiscard]] bool is_stranger() const { return !has_memory(); }

    /** End it, with what is written for it. */
    void end();

    /** Whether all has ended that was written for it. */
    [[nodiscard]] bool is_idle()
    {
        const std::lock_guard<util::brief_lock> guard(server_.lock);
        return running_ == 0;
    }

    /** Have the sender ring when there is more to deliver.
     *  @return false: there is something now, or this has not arrived. */
    [[nodiscard]] bool arm();

    /** Go on, and deliver up to @p max messages: handler(id, data, length).
     *  @return How much was done. */
    template <typename Handler>
    unsigned progress(unsigned max, Handler &&handler)
    {
        meet();
        if (!is_in_use()) {
            return 0;
        }
        unsigned count = 0;
        for (slot_head head; (count < max) && next(head); ++count, ++filled_) {
            char *const data = at(offset_of(filled_) + sizeof(head));
            if (head.id == asks_for_write) {
                if (!serve(data, head.length)) {
                    break;
                }
            } else {
                handler(static_cast<uint8_t>(head.id), data,
                        size_t{head.length});
            }
        }
        tell();
        return count;
    }

private:
    using clock = std::chrono::steady_clock;

    struct served_write {
        uct_completion_t done;
        box_receiver *of;
        uint32_t number;
        uint64_t stamp;
        bool is_running;
    };

    void meet();
    void end_locked();
    [[nodiscard]] bool next(slot_head &head_p);
    [[nodiscard]] bool serve(const void *data, size_t length);
    static void on_end(uct_completion_t *self);
    void finish(served_write &write, int result);
    void tell();

    const clock::time_point since_ = clock::now(); /* when it knocked */
    box_server &server_; /* with its lock, but for delivering: */
    served_ports ports_;
    std::array<served_write, slots> writes_{};
    unsigned running_ = 0;
    uint64_t answers_ = 0; /* that are to be written, a bit of each */
    unsigned polls_   = 0;
};

} // namespace gaudi::ipc
