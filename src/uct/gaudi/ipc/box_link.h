/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages from one process to a process in another box, over the external
 * ports of their cards.
 *
 *   sender                                      receiver
 *   [ slots ] --- written by ports -----------> [ slots ] --> handlers
 *   sent      --- written when they arrived --> available
 *   room      <-- written by ports ------------ consumed
 *
 * Each end has one piece of host memory, mapped for its card and never unmapped
 * while its ports are open: a late write of the peer would reset the card. A
 * slot is one message. That messages are there the sender writes when their
 * writes are complete, for no order among writes is promised.
 *
 * The two meet by TCP, at the address of an external port, which is a network
 * interface of the machine, too: the sender presents the secret that the
 * receiver has in its address, and each says where its queue pairs and its
 * memory are. The socket stays open, and its end is the link's.
 *
 * Nothing waits. One thread at a time. In a forked child nothing happens.
 */
#pragma once

#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/cards/ports.h"
#include "util/fork_handlers.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace gaudi::ipc {

/** What both ends say first. Nothing in it is believed. */
struct box_greeting {
    static constexpr uint64_t current_version = 0x6761756469626f78 + 1;

    uint64_t version = current_version;
    uint64_t secret  = 0;
    uint64_t memory  = 0; /**< device address of its own */
    uint64_t slot    = 0; /**< bytes of one */
    shim::port_offer offer;
};

class box_link {
public:
    static constexpr uint64_t slots = 64;

    /** Start to reach a receiver. @param longest  Bytes of a message.
     *  @return 0 or -errno. */
    static int open(base::card &by, const sockaddr_in &to, uint64_t secret,
                    size_t longest, std::unique_ptr<box_link> &link_p);

    /** Take a sender that knocks: accepted, non-blocking. */
    static std::unique_ptr<box_link> accept(base::card &by,
                                            util::unique_fd peer,
                                            uint64_t secret, size_t longest);

    ~box_link();
    box_link(const box_link &)            = delete;
    box_link &operator=(const box_link &) = delete;

    /** Go on. @return How much was done; < 0: it is over, for a receiver with
     *  all that has come delivered. */
    int progress();

    /** Room for a message, of a sender; nullptr: there is none now. */
    void *reserve();
    /** It is filled. */
    void publish(uint8_t id, size_t length);

    /** Messages so far, and whether as many are where the receiver finds them.
     */
    [[nodiscard]] uint64_t sent() const { return filled_; }
    [[nodiscard]] bool is_flushed(uint64_t sent) const { return told_ >= sent; }

    /** Deliver up to @p max messages: handler(id, data, length).
     *  @return How many; < 0: what is there makes no sense. */
    template <typename Handler>
    int deliver(int max, Handler &&handler)
    {
        if ((step_ != step::ready) || is_sender_) {
            return 0;
        }
        const uint64_t available = theirs().load(std::memory_order_acquire);
        if (available - filled_ > slots) {
            return -1;
        }
        int count = 0;
        for (; (count < max) && (filled_ != available); ++count, ++filled_) {
            char *const at = slot(filled_);
            slot_head head;
            std::memcpy(&head, at, sizeof(head));
            if (head.length > slot_bytes_ - sizeof(head)) {
                return -1;
            }
            handler(static_cast<uint8_t>(head.id), at + sizeof(head),
                    size_t{head.length});
        }
        return count;
    }

private:
    enum class step { connecting, saying, hearing, ready, over };

    struct slot_head {
        uint32_t length;
        uint32_t id;
    };

    /* In front of the slots: what the peer writes, and what is written to it,
     * each in a line of its own. */
    static constexpr size_t own_word   = 64;
    static constexpr size_t head_bytes = 128;

    box_link(base::card &by, util::unique_fd socket, uint64_t secret,
             bool is_sender, size_t longest);

    [[nodiscard]] std::atomic_ref<uint64_t> theirs() const
    {
        return std::atomic_ref<uint64_t>(
            *reinterpret_cast<uint64_t *>(memory_->mapped.start()));
    }
    [[nodiscard]] std::atomic_ref<uint64_t> own() const
    {
        return std::atomic_ref<uint64_t>(
            *reinterpret_cast<uint64_t *>(memory_->mapped.start() + own_word));
    }
    [[nodiscard]] size_t offset_of(uint64_t number) const
    {
        return head_bytes + (number % slots) * slot_bytes_;
    }
    [[nodiscard]] char *slot(uint64_t number) const
    {
        return memory_->mapped.start() + offset_of(number);
    }

    int prepare();
    int meet();
    int say();
    int hear();
    int connect();
    int work();
    int collect();
    void write_slots();
    void write_word(uint64_t value);
    bool has_ended();

    base::card &card_;
    const util::owning_process made_in_;
    util::unique_fd socket_;
    util::closed_in_children closed_in_children_;
    const bool is_sender_;
    const size_t slot_bytes_;
    step step_ = step::connecting;
    box_greeting mine_;
    box_greeting peers_;
    size_t said_  = 0; /* bytes */
    size_t heard_ = 0;
    std::unique_ptr<base::port_memory> memory_;
    std::unique_ptr<shim::connection> over_;

    /* Messages since the beginning: of a sender those filled, posted, arrived
     * and told of; of a receiver those consumed (filled_) and told of. */
    uint64_t filled_ = 0, posted_ = 0, arrived_ = 0, told_ = 0;
    uint64_t telling_ = 0; /* what the word says that is under way */
    bool tells_       = false;
    std::vector<bool> written_; /* of the slots */
    unsigned polls_ = 0;
    bool peer_left_ = false;
};

} // namespace gaudi::ipc
