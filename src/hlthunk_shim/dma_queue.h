/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A queue of DMA copies on one card.
 *
 * The interface has one implementation for each way in which a card takes work
 * (card::make_queue picks it); nothing above knows which. A queue is used by
 * one thread at a time; different queues of one card may run in parallel.
 * Copies of one queue end in the order of their submission. A thread that does
 * not use the queue can wait for its copies with card::query and what
 * dma_queue::oldest_ticket says.
 */
#pragma once

#include <cstdint>

namespace gaudi::shim {

/**
 * Names work that a card was given.
 *
 * Given out by a queue or a card, and understood by that card alone: see
 * card::query. A number or an address of whoever runs the work.
 */
enum class ticket : uint64_t { none = 0 };

/** How one copy ended. */
struct dma_completion {
    void *cookie; /**< as given to submit */
    int status;   /**< 0, -EIO aborted, -ETIMEDOUT lost, -ENODEV card gone */
};

class dma_queue {
public:
    virtual ~dma_queue()                    = default;
    dma_queue(const dma_queue &)            = delete;
    dma_queue &operator=(const dma_queue &) = delete;

    /**
     * Start a copy between device virtual addresses, split into as many packets
     * as it needs.
     *
     * @param length  bytes; 0 is a copy that ends after the ones before it.
     * @param cookie  Returned by @ref poll.
     * @param id_p    Names the copy for @ref wait; filled on success only.
     * @return 0; -EAGAIN when this queue or the card has no room, poll and try
     *         again; -EMSGSIZE beyond what a command buffer describes; else
     *         -errno of the driver, and nothing was started.
     */
    [[nodiscard]] virtual int submit(uint64_t dst, uint64_t src,
                                     uint64_t length, void *cookie,
                                     uint64_t &id_p) = 0;

    /**
     * Collect ended copies, oldest first, without waiting.
     *
     * @return Entries written to `completions`, at most `max`.
     */
    virtual unsigned poll(dma_completion *completions, unsigned max) = 0;

    /**
     * Wait until a copy has ended. It still has to be collected by @ref poll.
     *
     * @param timeout_us  Longest wait.
     * @return Its status as in dma_completion, or -EAGAIN at the timeout.
     */
    [[nodiscard]] virtual int wait(uint64_t id, uint64_t timeout_us) = 0;

    /**
     * Wait until every copy has ended. They still have to be collected.
     *
     * @return 0, or -EAGAIN at the timeout.
     */
    [[nodiscard]] virtual int wait_all(uint64_t timeout_us) = 0;

    /** Copies submitted and not yet collected. */
    [[nodiscard]] virtual unsigned outstanding() const = 0;

    /**
     * The work that the oldest uncollected copy waits for.
     *
     * Belongs to the thread that uses the queue; what it gives may be passed to
     * card::query by any thread. When that says anything but 0, @ref poll
     * collects at least this copy.
     *
     * @return ticket::none when there is nothing to wait for: no copy is
     *         outstanding, or the oldest one can be collected at once because
     *         it was seen to end, or because it is a copy of 0 bytes, which
     *         makes no work, and all before it are collected.
     */
    [[nodiscard]] virtual ticket oldest_ticket() const = 0;

protected:
    dma_queue() = default;
};

/** Sizes of a queue. */
struct dma_queue_options {
    /** Copies (and command buffers) in flight, a power of two. */
    unsigned depth = 64;
    /** Longest copy of one packet, bytes; 0 for what the packet holds. Smaller
     *  values exercise the splitting. */
    uint64_t max_packet_bytes = 0;
    /** Which of the streams of the direction, see capabilities::streams. */
    unsigned stream = 0;
};

} // namespace gaudi::shim
