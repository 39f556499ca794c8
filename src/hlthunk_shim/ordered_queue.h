/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What all kinds of queues do alike: they keep copies in order, from submission
 * to collection.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

namespace gaudi::shim {

/**
 * @tparam Work   What the card was given for a copy; Work{}: nothing.
 * @tparam Queue  Derives from this, and has
 *                `int look(const Work &oldest, uint32_t timeout_us)`, which
 *                gives 1 when that has ended, 0 when it runs, or -errno as it
 *                failed; and `ticket name(const Work &) const`.
 */
template <typename Queue, typename Work>
class ordered_queue : public dma_queue {
public:
    unsigned poll(dma_completion *completions, unsigned max) final
    {
        unsigned count = 0;
        while ((count < max) && (collected_ != next_)) {
            if ((collected_ == ended_) && !end_oldest(0)) {
                break;
            }
            const copy &ended    = at(collected_++);
            completions[count++] = {ended.cookie, ended.status};
        }
        return count;
    }

    int wait(uint64_t id, uint64_t timeout_us) final
    {
        using clock    = std::chrono::steady_clock;
        unsigned polls = 0;
        clock::time_point deadline;

        while (ended_ <= id) {
            if (end_oldest((polls < wait_polls) ? 0 : wait_slice_us)) {
                continue;
            }
            const auto now = clock::now();
            if (polls++ == 0) {
                deadline = now + std::chrono::microseconds(
                                     std::min(timeout_us, longest_wait_us));
            } else if (now >= deadline) {
                return -EAGAIN;
            }
        }
        return at(id).status;
    }

    int wait_all(uint64_t timeout_us) final
    {
        /* How the copies ended is for whoever collects them. */
        return ((running() > 0) && (wait(next_ - 1, timeout_us) == -EAGAIN))
                   ? -EAGAIN
                   : 0;
    }

    unsigned outstanding() const final
    {
        return static_cast<unsigned>(next_ - collected_);
    }

    ticket oldest_ticket() const final
    {
        if ((collected_ != ended_) || (ended_ == next_) ||
            (at(ended_).work == Work{})) {
            return ticket::none;
        }
        return self().name(at(ended_).work);
    }

protected:
    /* How long a dying queue waits for the card. */
    static constexpr uint64_t close_timeout_us = 60'000'000;

    /** @param depth  A power of two. */
    explicit ordered_queue(unsigned depth)
        : depth_(depth), copies_(std::make_unique<copy[]>(depth))
    {}

    [[nodiscard]] uint64_t depth() const { return depth_; }
    [[nodiscard]] bool is_full() const { return next_ - collected_ == depth_; }

    /** What @ref add will give. */
    [[nodiscard]] uint64_t next_id() const { return next_; }

    /** Copies that have not ended. */
    [[nodiscard]] unsigned running() const
    {
        return static_cast<unsigned>(next_ - ended_);
    }

    /** The card has been given a copy. @return Its id. */
    uint64_t add(const Work &work, void *cookie)
    {
        at(next_) = {work, cookie, 0};
        return next_++;
    }

private:
    struct copy {
        Work work;
        void *cookie;
        int status;
    };

    /* Longest wait of one driver call, so that a deadline is kept. */
    static constexpr uint32_t wait_slice_us = 10000;
    /* More than anybody waits, and clear of the clock's end. */
    static constexpr uint64_t longest_wait_us = uint64_t{1} << 50;
    /* Polls before a wait sleeps. */
    static constexpr unsigned wait_polls = 64;

    [[nodiscard]] const Queue &self() const
    {
        return static_cast<const Queue &>(*this);
    }
    [[nodiscard]] copy &at(uint64_t id) const
    {
        return copies_[id & (depth_ - 1)];
    }

    /* Look at the oldest running copy. @return Whether it has ended. */
    bool end_oldest(uint32_t timeout_us)
    {
        copy &oldest = at(ended_);
        if (oldest.work != Work{}) {
            const int ret =
                static_cast<Queue *>(this)->look(oldest.work, timeout_us);
            if (ret == 0) {
                return false;
            }
            oldest.status = (ret == 1) ? 0 : ret;
        }
        ++ended_;
        return true;
    }

    const uint64_t depth_;
    const std::unique_ptr<copy[]> copies_; /* ring */
    uint64_t next_      = 0;               /* id of the next one */
    uint64_t ended_     = 0; /* first one not known to have ended */
    uint64_t collected_ = 0; /* first one not yet handed to the caller */
};

} // namespace gaudi::shim
