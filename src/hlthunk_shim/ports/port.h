/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A port of a card that is in use: its completion queue, which all connections
 * of the process over this port share, and their queue pairs.
 *
 * Any thread; one queue pair is used by one thread at a time. Writing, ringing
 * and polling make no system call; where two threads poll, one does it for
 * both.
 */
#pragma once

#include "hlthunk_shim/abi/port_formats.h"
#include "hlthunk_shim/ports/verbs_library.h"
#include "util/locks.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::shim {

/** Connections that can use a port at a time. */
inline constexpr unsigned queues_of_port = 15;

/** In which entry writes ask for the completion that their sender waits for. */
enum class asking { in_receive, in_send };

/** What the ports of a card have in common. */
struct port_context {
    const verbs_library &lib;
    generation kind;
    ibv_context *context;
    ibv_pd *domain;
    mutable std::atomic<uint32_t> changes{1}; /**< see port_device::changes */
    mutable std::atomic<asking> asks{asking::in_receive};
    mutable std::atomic<bool> is_answered{false}; /**< the card does answer */
    mutable uint64_t set_up = 0; /**< its ports that are, by bit: each can be
                                      once; one thread at a time */
};

/** Where a queue pair rings. */
struct doorbell_fifo {
    hbldv_usr_fifo *handle = nullptr;
    uint32_t units         = 0; /**< a power of two */
    uint32_t used          = 0; /**< of these, since the beginning */
    uint32_t consumed      = 0; /**< of these, when that was last asked */
    util::brief_lock lock;      /**< where several ring; never waited for */
};

/** One end of a reliable connection over a port. */
struct queue_pair {
    ibv_qp *handle  = nullptr;
    uint32_t number = 0; /**< by which the card knows it */
    uint32_t key    = 0; /**< what the peer has to name */

    send_entry *send       = nullptr; /**< rings of @ref queue_places */
    receive_entry *receive = nullptr;

    doorbell_fifo own_fifo;
    doorbell_fifo *fifo = nullptr; /**< this, or that of the port */

    /* Entries since the beginning. */
    std::atomic<uint32_t> posted{0};
    std::atomic<uint32_t> completed{0};
    /** Nothing is sent any more, or nobody knows what was. */
    std::atomic<bool> failed{false};
};

/** What the other end has to know. */
struct queue_pair_address {
    uint32_t number;
    uint32_t key;
    std::array<uint8_t, 16> gid;
};

class port {
public:
    /**
     * Take the port into use.
     *
     * @param with    Must outlive it.
     * @param number  Verbs' own, from 1 on.
     * @param port_p  Filled on success only.
     * @return Why it cannot be; empty: it is.
     */
    static std::string open(const port_context &with, unsigned number,
                            std::unique_ptr<port> &port_p);
    ~port();
    port(const port &)            = delete;
    port &operator=(const port &) = delete;

    [[nodiscard]] unsigned number() const { return number_; }

    /** What peers reach it by. */
    [[nodiscard]] const ibv_gid &gid() const { return gid_; }

    /** Whether its link was up when it was last looked at; new writes leave it
     *  out when it was not. */
    [[nodiscard]] bool is_up() const
    {
        return up_.load(std::memory_order_relaxed);
    }
    void look_at_link()
    {
        up_.store(is_up(with_, number_));
        ++with_.changes;
    }

    /** Ask for the link of a port, which need not be in use. */
    [[nodiscard]] static bool is_up(const port_context &with, unsigned number);

    /* --- connections -------------------------------------------------------*/

    /** Make a queue pair, and say where it is.
     *  @return What went wrong; empty: nothing. */
    [[nodiscard]] std::string create(queue_pair &made,
                                     queue_pair_address &address_p);

    /** Connect it with that of the peer, which may write from then on what is
     *  mapped for this card. */
    [[nodiscard]] std::string connect(queue_pair &own,
                                      const queue_pair_address &peer);

    /** Destroy it: the card has ended or dropped its writes then, and what had
     *  been completed is known. */
    void destroy(queue_pair &old);

    /** Mark the one that an event is about as failed; nullptr: all. */
    void fail(const ibv_qp *one);
    [[nodiscard]] bool has(const ibv_cq *queue) const
    {
        return own_.handle == queue;
    }

    /* --- without system calls ----------------------------------------------*/

    /** Write an entry behind those that are posted. */
    void write(queue_pair &to, uint64_t remote, uint64_t local,
               uint32_t size) const;

    /** Write a byte of the last entry once more, for which a completion is
     *  asked in both entries: if it comes, and comes first, writes ask in the
     *  other entry from then on. */
    void repeat(queue_pair &of) const;
    /** Whether the last entry asks where no answer may come. */
    [[nodiscard]] bool may_repeat(const queue_pair &of) const;

    /** Tell the card of all that is posted.
     *  @return false when it takes no more doorbells now. */
    [[nodiscard]] bool ring(queue_pair &of) const;

    /** Note what the card has completed. */
    void poll();

private:
    struct completion_queue {
        ibv_cq *handle = nullptr;
        hbldv_query_cq_attr memory{};
        uint32_t consumed = 0;
        uint32_t told     = 0; /* of these, to the card */
    };

    explicit port(const port_context &with, unsigned number)
        : with_(with), number_(number), counting_(counting_of(with.kind))
    {}

    static int query(const port_context &with, unsigned number,
                     ibv_port_attr &known_p);
    std::string set_up();
    int make_fifo(doorbell_fifo &made) const;
    std::string initialise(queue_pair &made, queue_pair_address &address_p);
    void put(queue_pair &to, port_write what) const;
    void note_completion(const cq_entry &found);
    void note_answer(const queue_pair &of, uint32_t first, uint32_t last) const;
    void drain();
    template <typename Each>
    void drain(completion_queue &from, Each &&each) const;
    std::string make_queue(completion_queue &made) const;

    const port_context &with_;
    const unsigned number_;
    const port_counting counting_;
    std::atomic<bool> up_{true};

    ibv_gid gid_{};

    util::brief_lock cq_lock_; /* and of queue_pairs_ */
    completion_queue own_;
    /* Of what peers write before they know which entry is theirs: never more
     * than it holds. */
    completion_queue peers_;
    std::vector<queue_pair *> queue_pairs_;

    /* Of queue pairs for which there are no more: a Gaudi3 has 11. */
    mutable doorbell_fifo common_fifo_;
};

} // namespace gaudi::shim
