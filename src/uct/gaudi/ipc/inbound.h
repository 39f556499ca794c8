/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The server's end of a link (protocol.h; the client's is link.h): messages for
 * an interface of this process, and requests for copies of its memory.
 *
 * The service thread owns it and reads its socket. The interface's thread reads
 * its messages. Requests are served under the service's serve lock. Nothing
 * that the client wrote is trusted.
 */
#pragma once

#include "uct/gaudi/base/memory/host_region.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/event.h"
#include "uct/gaudi/ipc/exports.h"
#include "uct/gaudi/ipc/protocol.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi::ipc {

/** Host memory of this process on its way to or from chunks. The kernel copies
 *  it, which finds pages that the program has unmapped, by a file of our own:
 *  that of the segment is the client's to block. Under the serve lock. */
class bounce_buffer {
public:
    /** @return UCS_ERR_INVALID_ADDR: the memory is not there.
     *          UCS_ERR_NO_MEMORY. */
    [[nodiscard]] ucs_status_t copy(bool to_memory, uint64_t memory,
                                    char *chunk, size_t length);

    /** Bytes so far. */
    [[nodiscard]] uint64_t copied() const { return copied_; }

private:
    [[nodiscard]] bool make();

    static constexpr size_t size = 1 << 18;
    uint64_t copied_             = 0;
    util::unique_fd file_;
    util::closed_in_children file_in_children_;
    util::file_mapping mapping_;
};

constexpr uint32_t unknown_interface = UINT32_MAX;

class inbound {
public:
    explicit inbound(util::unique_fd socket)
        : socket_(std::move(socket)), socket_in_children_(socket_.get())
    {}
    ~inbound() { unmap_chunks(); }

    /** For the service's thread. */
    [[nodiscard]] int socket() const { return socket_.get(); }
    [[nodiscard]] bool is_greeted() const
    {
        return segment_.start() != nullptr;
    }
    [[nodiscard]] unsigned pid() const { return pid_; }
    /** The receiver that the client names; 0: none; before that unknown. Any
     *  thread. */
    [[nodiscard]] uint32_t interface() const { return interface_; }

    /** Map what a client has brought. @return 0 or -errno. */
    [[nodiscard]] int greet(const hello_message &hello,
                            const util::unique_fd &file);

    /** Nothing is read or served any more; the client learns it. */
    void hang_up();
    [[nodiscard]] bool has_ended() const { return ended_.load(); }

    /** It has ended: close what it has open. Under the serve lock. */
    void close();

    /** @return As send_message. Any thread. */
    int send(const void *message, size_t length);

    /* --- messages: the interface's thread ---------------------------------*/

    [[nodiscard]] ring_reader &messages() { return messages_; }

    /* --- requests: under the serve lock -----------------------------------*/

    [[nodiscard]] bool has_posted() const
    {
        return !has_ended() && (control().posted.load() != started_);
    }
    [[nodiscard]] unsigned running() const { return running_; }

    /** Whether the next request may start now.
     *  @param share  How many copies of this client may be under way; writes
     *                over ports lead to nobody else, and do not count. */
    [[nodiscard]] bool may_start(unsigned share) const;

    /** Start it. @return false: there is none, or no room now. */
    bool start_next(base::transfer_engine &engine, base::flush_domain &domain,
                    unsigned share, bounce_buffer &bounce);

    /** It has ended, and nothing is under way: have cards unmap the chunks, not
     *  when the last reference goes, which may be as the process ends. */
    void unmap_chunks();

    /** Have the client ring after a request; or not. */
    void set_awake(bool awake) { control().server_awake.store(awake ? 1 : 0); }

    /** Connect ports to a card of this process. @param asked  Becomes the
     *  answer. */
    void connect_ports(base::transfer_engine &engine, ports_message &asked);
    void end_ports();
    [[nodiscard]] bool has_ports() const { return has_ports_.load(); }

    /* --- revocations: under the service's control lock --------------------*/

    uint64_t awaited_word = 0; /**< the client is to give up; 0: nothing */

private:
    struct served_copy : uct_completion_t {
        inbound *of             = nullptr;
        exported_memory *memory = nullptr;
        uint64_t number         = 0;
        bool is_running         = false;
        bool is_write           = false;
    };

    static void on_end(uct_completion_t *self);
    [[nodiscard]] bool may_start(request_kind kind, unsigned share) const;

    [[nodiscard]] link_control &control() const
    {
        return *reinterpret_cast<link_control *>(segment_.start());
    }
    [[nodiscard]] link_request &request(uint64_t number) const
    {
        return reinterpret_cast<link_request *>(
            segment_.start() + request_offset)[number % max_requests];
    }
    [[nodiscard]] bool is_in_chunks(uint64_t offset, uint64_t length) const
    {
        return (length != 0) && (offset <= chunk_bytes_) &&
               (length <= chunk_bytes_ - offset);
    }
    [[nodiscard]] ucs_status_t start(const request_body &asked,
                                     base::transfer_engine &engine,
                                     base::flush_domain &domain,
                                     served_copy &copy, bounce_buffer &bounce);
    [[nodiscard]] ucs_status_t copy_device(const request_body &asked,
                                           base::transfer_engine &engine,
                                           base::flush_domain &domain,
                                           served_copy &copy);
    void finish(const served_copy &copy, int result);

    std::mutex lock_; /* leaf: of the socket's descriptor */
    util::unique_fd socket_;
    util::closed_in_children socket_in_children_;
    util::file_mapping segment_;
    uint64_t chunk_bytes_ = 0; /* of all chunks */
    std::atomic<uint32_t> interface_{unknown_interface};
    unsigned pid_ = 0;
    std::atomic<bool> ended_{false};
    ring_reader messages_;

    base::host_region *chunks_ = nullptr; /* once a request needs them */
    std::array<served_copy, max_requests> copies_{};
    uint64_t started_              = 0;
    unsigned running_              = 0;
    unsigned writes_               = 0;       /* of these, over ports */
    base::transfer_engine *engine_ = nullptr; /* of the ports */
    std::map<uint32_t, base::port_lane *> ports_;
    std::atomic<bool> has_ports_{false};
};

/** All messages for one interface. */
class receiver {
public:
    explicit receiver(std::shared_ptr<event> wakes) : wakes_(std::move(wakes))
    {}

    /** Its number in this process; the service sets it. */
    uint32_t number = 0;

    /** Deliver messages, those of all senders in turn.
     *  @param deliver  Called with id, data, length.
     *  @return How many; at most max. */
    template <typename Deliver>
    unsigned poll(unsigned max, Deliver &&deliver)
    {
        if (changed_.load(std::memory_order_acquire)) [[unlikely]] {
            update();
        }
        unsigned count     = 0;
        const size_t rings = rings_.size();
        for (size_t i = 0; (i < rings) && (count < max); ++i) {
            next_             = (next_ + 1 < rings) ? next_ + 1 : 0;
            ring_reader &from = rings_[next_]->messages();
            auto result       = ring_reader::result::none;
            ring_reader::message message;
            while ((count < max) && ((result = from.peek(message)) ==
                                     ring_reader::result::message)) {
                deliver(message.id, message.data, message.length);
                from.release();
                ++count;
            }
            if (result == ring_reader::result::corrupted) [[unlikely]] {
                refuse(*rings_[next_]);
            }
        }
        return count;
    }

    /** Have the next message wake. @return false: there is one. */
    [[nodiscard]] bool arm();

    /** Read nothing more, and close all links. */
    void close();

    /* Any thread. */
    void add(std::shared_ptr<inbound> from);
    void wake() { wakes_->signal(); }
    void note_change() { changed_.store(true, std::memory_order_release); }

private:
    void update();
    void refuse(inbound &sender);

    const std::shared_ptr<event> wakes_;
    std::vector<std::shared_ptr<inbound>> rings_;
    size_t next_ = 0; /* served last */

    std::atomic<bool> changed_{false};
    std::mutex lock_; /* leaf: of fresh_ and closed_ */
    std::vector<std::shared_ptr<inbound>> fresh_;
    bool closed_ = false;
};

} // namespace gaudi::ipc
