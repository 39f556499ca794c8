/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The receiving end of active messages: a ring for each sender, in memory that
 * senders map, and what wakes a receiver that sleeps.
 *
 * Only rings that are in use take memory, up to a page and the ring's size
 * each.
 *
 * One thread at a time. A sender may die at any instruction: what it published
 * is delivered, then its ring is free again. A ring with nonsense in it is
 * closed, with an error message.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/messages/mailbox_file.h"
#include "uct/gaudi/ipc/messages/ring.h"
#include "uct/gaudi/ipc/messages/ring_owners.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/file_mapping.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <memory>
#include <type_traits>
#include <vector>

namespace gaudi::ipc {

/** How to reach a mailbox; travels as it is. */
struct mailbox_address {
    process_id process;
    file_ref file; /**< with the sockets' end that wakes its process */

    /* NOLINTNEXTLINE(modernize-use-nullptr): as process_id's */
    auto operator<=>(const mailbox_address &) const = default;
};
/* UCP 1.13 writes the length of an interface's address into six bits. */
static_assert((sizeof(mailbox_address) == 40) &&
              std::has_unique_object_representations_v<mailbox_address>);

struct mailbox_options {
    /** Bytes in a ring; rounded up to a power of two, ring_min_size or more. */
    size_t fifo_size = ring_min_size;
    /** Rings that there is room for; at most mailbox::most_senders. */
    unsigned max_senders = mailbox_header::most_rings;
};

/** Wake who sleeps at the other end of a mailbox's socket.
 *  @return Whether it will wake up. */
[[nodiscard]] bool signal_mailbox(int socket);

class mailbox {
public:
    static constexpr unsigned most_senders = mailbox_header::most_rings;
    static constexpr size_t largest_fifo   = size_t{64} << 20;

    /** @return UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR, UCS_ERR_INVALID_PARAM;
     *  logged. */
    [[nodiscard]] static ucs_status_t
    create(const mailbox_options &options, std::unique_ptr<mailbox> &mailbox_p);

    /** Senders find out. */
    ~mailbox();

    [[nodiscard]] const mailbox_address &address() const { return address_; }

    /** Deliver messages: handler(uint8_t id, void *data, size_t length). The
     *  data is 8-byte aligned and valid in the handler only, which may send,
     *  and open and destroy connections. A poll in a handler does nothing.
     *  @return How many, at most @a max. */
    template <typename Handler>
    unsigned poll(unsigned max, Handler &&handler);

    /** Readable after @ref arm when there is something to poll. Stays ours. */
    [[nodiscard]] int event_fd() const { return owners_.event_fd(); }

    /** @return false: there is something to poll now. Connections that were
     *  opened or closed are no reason: calling again without a poll in between
     *  succeeds. They wake a sleeper only if another thread polls meanwhile,
     *  see collect_beside_sleepers. */
    [[nodiscard]] bool arm();

    /** Rings that senders own, as far as noticed. */
    [[nodiscard]] unsigned senders() const { return adopted_; }

private:
    /* A ring that a sender owns. */
    struct owned_ring {
        ring_reader reader;
        uint64_t owner       = 0; /* without owner_left */
        unsigned index       = 0;
        unsigned empty_polls = 0; /* in a row */
        bool polled          = false;
        bool finishing = false; /* free it when empty, unless taken over */
        bool broken    = false; /* is not read any more */
    };

    /* Messages from one ring before the next one has its turn. */
    static constexpr unsigned burst = 8;
    /* So many rings are always polled. Of more, one that was empty so often in
     * a row waits to be told. */
    static constexpr size_t always_polled = 8;
    static constexpr unsigned patience    = 1000;
    /* Polls from one look at the clock to the next. */
    static constexpr unsigned polls_per_look = 256;

    /* Rings that are mapped at once. */
    static constexpr unsigned rings_per_mapping = 64;

    explicit mailbox(const mailbox_layout &layout);
    ucs_status_t initialize();
    [[nodiscard]] mailbox_header &header() const
    {
        return *reinterpret_cast<mailbox_header *>(header_.start());
    }
    ucs_status_t make_file();
    ucs_status_t map_ring(unsigned index);
    void clear_ring(unsigned index);
    [[nodiscard]] char *ring(unsigned index) const; /* mapped */
    template <typename Handler>
    unsigned poll_ring(owned_ring &from, unsigned max, Handler &&handler);

    void wake();
    void collect();
    void collect_beside_sleepers();
    void look_after_senders();
    void find_dead();
    void adopt_all();
    ucs_status_t adopt(unsigned index);
    ucs_status_t read_ring(unsigned index);
    void start_polling(owned_ring &ring);
    void fail(owned_ring &ring);
    void tidy();
    bool try_idle(owned_ring &ring);
    bool try_free(owned_ring &ring);

    mailbox_address address_{};
    const mailbox_layout layout_;
    util::unique_fd file_;
    util::file_mapping header_;
    std::vector<util::file_mapping> mappings_; /* of rings; empty: not yet */
    util::unique_fd signal_;                   /* readable when a sender rang */
    util::unique_fd senders_end_;              /* of the same socket pair */
    ring_owners owners_;

    std::vector<std::unique_ptr<owned_ring>> rings_; /* by index */
    std::vector<owned_ring *> polled_;
    size_t next_      = 0; /* of polled_ */
    unsigned adopted_ = 0;

    bool polling_      = false; /* a handler runs */
    bool armed_        = false;
    bool untidy_       = false; /* a polled ring is to be idle, or free */
    unsigned polls_    = 0;
    uint64_t sleeps_   = 0;
    ucs_time_t looked_ = 0; /* after senders */
};

template <typename Handler>
unsigned mailbox::poll_ring(owned_ring &from, unsigned max, Handler &&handler)
{
    unsigned count = 0;
    ring_reader::message message;
    while (count < max) {
        const ring_reader::result found = from.reader.peek(message);
        if (found == ring_reader::result::message) [[likely]] {
            handler(message.id, message.data, message.length);
            from.reader.release();
            ++count;
            continue;
        }
        if (found == ring_reader::result::corrupted) {
            fail(from);
        }
        if (from.finishing) {
            untidy_ = true;
        } else if (count == 0) {
            if (polled_.size() > always_polled) {
                untidy_ |= (++from.empty_polls > patience);
            }
            return 0;
        }
        break;
    }
    from.empty_polls = 0;
    return count;
}

template <typename Handler>
unsigned mailbox::poll(unsigned max, Handler &&handler)
{
    if (polling_) {
        return 0;
    }
    if (armed_) {
        wake();
    }
    if (header().marked_groups.load(std::memory_order_relaxed) != 0) {
        collect_beside_sleepers();
    }
    if (++polls_ % polls_per_look == 0) {
        look_after_senders();
    }

    unsigned count = 0;
    polling_       = true;
    for (size_t left = polled_.size(); (left > 0) && (count < max); --left) {
        next_            = (next_ + 1 < polled_.size()) ? next_ + 1 : 0;
        owned_ring &from = *polled_[next_];
        count += poll_ring(from, (max - count < burst) ? max - count : burst,
                           handler);
    }
    polling_ = false;
    if (untidy_) {
        tidy();
    }
    return count;
}

} // namespace gaudi::ipc
