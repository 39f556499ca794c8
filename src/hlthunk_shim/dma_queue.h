/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A queue of DMA copies on one card: keeps them in order, from submission to
 * collection.
 *
 * Used by one thread at a time; different queues of one card may run in
 * parallel. Copies of one queue end in the order of their submission. Another
 * thread can wait for its copies by card::query and @ref
 * dma_queue::oldest_ticket.
 */
#pragma once

#include "hlthunk_shim/engine/dma_engine.h"

#include <cerrno>
#include <memory>

namespace gaudi::shim {

/** How one copy ended. */
struct dma_completion {
    void *cookie; /**< as given to submit */
    int status;   /**< 0, -EIO aborted, -ETIMEDOUT lost, -ENODEV card gone */
};

struct dma_queue_options {
    /** Copies in flight, a power of two up to 512. */
    unsigned depth = 64;
    /** Which of the streams of the direction, see capabilities::streams. */
    unsigned stream = 0;
};

class dma_queue final {
public:
    /** As card::make_queue.
     *  @param engine  Must outlive it. */
    [[nodiscard]] static int create(dma_engine &engine, dma_direction direction,
                                    const dma_queue_options &options,
                                    std::unique_ptr<dma_queue> &queue_p);
    ~dma_queue();
    dma_queue(const dma_queue &)            = delete;
    dma_queue &operator=(const dma_queue &) = delete;

    /**
     * Start a copy between device virtual addresses.
     *
     * @param length  bytes; 0 is a copy that ends after the ones before it.
     * @param cookie  Returned by @ref poll.
     * @param id_p    Names the copy for @ref wait; filled on success only.
     * @return 0; -EAGAIN when this queue or the card has no room, poll and try
     *         again; -EMSGSIZE for more than any card has; else -errno of the
     *         driver, and nothing was started.
     */
    [[nodiscard]] int submit(uint64_t dst, uint64_t src, uint64_t length,
                             void *cookie, uint64_t &id_p)
    {
        if (outstanding() == options_.depth) {
            return -EAGAIN;
        }
        copy &next = at(next_);
        if (length > 0) {
            const int ret = engine_.start(direction_, options_.stream, dst, src,
                                          length, next.job);
            if (ret != 0) {
                return ret;
            }
        } else {
            next.job = ticket::none;
        }
        next.cookie = cookie;
        next.status = 0;
        id_p        = next_++;
        return 0;
    }

    /**
     * Collect ended copies, oldest first, without waiting.
     *
     * @return Entries written to `completions`, at most `max`.
     */
    unsigned poll(dma_completion *completions, unsigned max)
    {
        unsigned count = 0;
        while ((count < max) && (collected_ != next_) &&
               ((collected_ != ended_) || end_oldest(0))) {
            const copy &ended    = at(collected_++);
            completions[count++] = {ended.cookie, ended.status};
        }
        return count;
    }

    /**
     * Wait until a copy has ended. It still has to be collected by @ref poll.
     *
     * @param timeout_us  Longest wait.
     * @return Its status as in dma_completion, or -EAGAIN at the timeout.
     */
    [[nodiscard]] int wait(uint64_t id, uint64_t timeout_us);

    /**
     * Wait until every copy has ended. They still have to be collected.
     *
     * @return 0, or -EAGAIN at the timeout.
     */
    [[nodiscard]] int wait_all(uint64_t timeout_us);

    /** Copies submitted and not yet collected. */
    [[nodiscard]] unsigned outstanding() const
    {
        return static_cast<unsigned>(next_ - collected_);
    }

    /**
     * The oldest uncollected copy, for card::query by any thread. When that
     * gives anything but 0, @ref poll collects at least this copy.
     *
     * @return ticket::none when no copy is outstanding, or the oldest one can
     *         be collected at once.
     */
    [[nodiscard]] ticket oldest_ticket() const
    {
        return ((collected_ == ended_) && (ended_ != next_)) ? at(ended_).job
                                                             : ticket::none;
    }

private:
    struct copy {
        ticket job; /* none: nothing to copy */
        void *cookie;
        int status;
    };

    dma_queue(dma_engine &engine, dma_direction direction,
              const dma_queue_options &options)
        : engine_(engine), direction_(direction), options_(options),
          copies_(std::make_unique<copy[]>(options.depth))
    {}

    [[nodiscard]] copy &at(uint64_t id) const
    {
        return copies_[id & (options_.depth - 1)];
    }
    /* @return Whether the oldest running copy has ended. */
    bool end_oldest(uint32_t timeout_us)
    {
        copy &oldest = at(ended_);
        if (oldest.job != ticket::none) {
            const int result = engine_.look(oldest.job, timeout_us);
            if (result == 0) {
                return false;
            }
            oldest.status = (result == 1) ? 0 : result;
        }
        ++ended_;
        return true;
    }

    dma_engine &engine_;
    const dma_direction direction_;
    const dma_queue_options options_;
    const std::unique_ptr<copy[]> copies_; /* ring */
    uint64_t next_      = 0;               /* id of the next one */
    uint64_t ended_     = 0; /* first one not known to have ended */
    uint64_t collected_ = 0; /* first one not yet handed to the caller */
};

} // namespace gaudi::shim
