/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A connection between a card of this process and one of another process over
 * all ports that lead from one to the other: writes to what is mapped for the
 * peer's card.
 *
 * Each end makes its own, sends what @ref offer says to the other one, and
 * connects to what that one offers. Who has connected can be written to; so
 * whoever offers first may write when the answer has come, and the other one
 * when it knows that this has been taken.
 *
 * Used by one thread at a time. Posting and polling make no system call and
 * allocate nothing, but where something has gone wrong: events are looked for
 * when writes do not end for a while. Nothing tells of ends but polling.
 *
 * A write is complete when the peer's port has acknowledged all of it. Writes
 * end in any order.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/ports/port_device.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::shim {

/** What one end has to know of the other one. Goes from process to process as
 *  it is, and nothing in it is believed. */
struct port_offer {
    static constexpr uint32_t current_version = 1;

    struct end {
        queue_pair_address address;
        uint32_t port; /**< the card's number of it, or @ref gone */
    };
    static constexpr uint32_t gone = UINT32_MAX;

    uint32_t version = current_version;
    uint32_t kind    = 0; /**< generation */
    uint32_t own     = 0; /**< module ids */
    uint32_t peer    = 0;
    uint32_t count   = 0; /**< of ends */
    std::array<end, ports_of_card> ends{};
};
static_assert(sizeof(port_offer::end) == 28);
static_assert(sizeof(port_offer) == 20 + 24 * 28);

struct connection_options {
    /** Writes get a port for each so many bytes, as far as there are ports. */
    uint32_t stripe_bytes = 16 << 10;
    /** Writes under way, a power of two. */
    unsigned depth = 512;
    /** A port that completes nothing for so long is given up. Longer than the
     *  card itself tries. */
    std::chrono::milliseconds patience = std::chrono::seconds(20);
};

class connection {
public:
    /**
     * Make one end. Makes system calls, as do @ref connect and @ref close.
     *
     * @param over    Must outlive it.
     * @param peer    Module id of the other card.
     * @param connection_p  Filled on success only.
     * @return Why there is none, in one line; empty: there is.
     */
    static std::string open(port_device &over, unsigned peer,
                            const connection_options &options,
                            std::unique_ptr<connection> &connection_p);
    ~connection();
    connection(const connection &)            = delete;
    connection &operator=(const connection &) = delete;

    [[nodiscard]] const port_offer &offer() const { return offer_; }

    /** Connect to what the peer offers, which is connected already. Ports that
     *  are not in both offers are left out.
     *  @return As @ref open; also where one of them cannot be connected, to
     *          which the peer would write. */
    [[nodiscard]] std::string connect(const port_offer &peers)
    {
        return connect(peers, false);
    }
    /** The same before the peer is: it has @ref offer later, which then lacks
     *  ports that cannot be connected. */
    [[nodiscard]] std::string accept(const port_offer &peers)
    {
        return connect(peers, true);
    }

    /**
     * Start a write.
     *
     * @param remote  Address of the peer's card.
     * @param local   Address of this card: of its memory, or of host memory
     *                that is mapped for it.
     * @param size    Bytes; 0 is complete at once.
     * @param cookie  Returned by @ref poll.
     * @return 0; -EAGAIN without room: poll, and try again; -EMSGSIZE beyond
     *         what all queues take; -ENOTCONN when no port works; -ENODEV when
     *         the card is lost. Nothing was started unless it is 0.
     */
    [[nodiscard]] int post(uint64_t remote, uint64_t local, uint64_t size,
                           void *cookie);

    /**
     * Collect writes that have ended.
     *
     * One that has failed has written any part of its bytes, none that is
     * written later: it can be repeated over another way.
     *
     * @return Entries written to `ended`, at most `max`. Their status is 0,
     *         -EIO, -ETIMEDOUT when a port was given up, or -ENODEV.
     */
    unsigned poll(dma_completion *ended, unsigned max);

    /** Writes started and not yet collected. */
    [[nodiscard]] unsigned outstanding() const { return outstanding_; }

    /** Ports that new writes go over. */
    [[nodiscard]] unsigned usable_ports() const;

    /** Whether new writes can be made: some port works, and no queue pair has
     *  failed, of which the peer does not know. */
    [[nodiscard]] bool is_usable() const
    {
        const uint32_t changes = device_.changes();
        if (changes != seen_) [[unlikely]] {
            seen_   = changes;
            usable_ = (usable_ports() > 0) && !has_failed();
        }
        return usable_;
    }

    /** End it: nothing is written any more, and what was under way fails, to be
     *  collected by @ref poll. */
    void close();

private:
    using clock = std::chrono::steady_clock;

    /* In a queue, where one place stays empty, and one is for a repetition. */
    static constexpr uint32_t most_entries = queue_places - 2;

    /* One port. */
    struct link {
        link() = default;
        ~link()
        {
            if (pair.handle != nullptr) {
                over->destroy(pair);
            }
        }
        link(const link &)            = delete;
        link &operator=(const link &) = delete;

        port *over        = nullptr;
        unsigned own      = 0; /* the cards' numbers of it */
        unsigned peer     = 0;
        bool rung         = true;
        bool has_repeated = false;
        uint32_t finished = 0;   /* entries, of those completed */
        clock::time_point since; /* it gets on no more; none: it does */
        queue_pair pair;
        std::array<uint16_t, queue_places> entries{}; /* of which write */

        [[nodiscard]] uint32_t posted() const
        {
            return pair.posted.load(std::memory_order_relaxed);
        }
        [[nodiscard]] uint32_t room() const
        {
            const uint32_t under_way = posted() - finished;
            return (under_way < most_entries) ? most_entries - under_way : 0;
        }
        [[nodiscard]] bool works() const
        {
            return (pair.handle != nullptr) && over->is_up() &&
                   !pair.failed.load(std::memory_order_relaxed);
        }
    };

    struct write {
        void *cookie     = nullptr;
        uint32_t missing = 0; /* entries */
        int status       = 0;
    };

    connection(port_device &over, const connection_options &options);

    std::string connect(const port_offer &peers, bool partly);
    [[nodiscard]] bool has_failed() const;

    void start(link &on, uint16_t id, uint64_t remote, uint64_t local,
               uint64_t size);
    void repeat(link &on);
    void finish(link &on, int status);
    void give_up(link &on, int status);
    void look_after();
    void look_for_events(clock::time_point now);
    [[nodiscard]] bool is_over() const;

    port_device &device_;
    const connection_options options_;
    port_offer offer_;
    bool connected_        = false;
    mutable uint32_t seen_ = 0; /* changes of the device, as of usable_ */
    mutable bool usable_   = false;
    std::vector<std::unique_ptr<link>> links_;
    std::vector<link *> chosen_; /* for one write */
    unsigned next_ = 0;          /* link, for short writes */

    std::vector<write> writes_;
    std::vector<uint16_t> free_;  /* of these */
    std::vector<uint16_t> ended_; /* a ring of writes_.size() */
    uint32_t ended_count_ = 0;
    uint32_t ended_first_ = 0;
    unsigned outstanding_ = 0;
    unsigned polls_       = 0;
    clock::time_point looked_; /* for events */
};

} // namespace gaudi::shim
