/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What moves bytes for one engine: a card of this process, the cards of another
 * one, or the ports of a card to another one's.
 *
 * A lane has queues of operations, which go first in, first out, and, but for
 * ports, a fixed set of staging chunks, made once, through which host memory
 * passes that is not registered. Used by one thread at a time.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/memory.h"
#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/transfer/wakeup.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/locks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gaudi::base {

class lane;
struct job;
struct operation;

/** A chunk of staging memory. */
struct staging_chunk {
    lane *home;
    char *data;
    uint64_t va;   /* as the queues of the lane have it */
    lane *lent_to; /* ports that use it, or nullptr */
    staging_chunk *next_free;
};

/** Gives to the lane what was taken from it. */
struct give_back {
    inline void operator()(staging_chunk *used) const;
    inline void operator()(job *used) const;
};
using chunk_ptr = std::unique_ptr<staging_chunk, give_back>;
using job_ptr   = std::unique_ptr<job, give_back>;

/** Operations that wait for a lane to copy in one direction. */
struct work_queue {
    lane *home = nullptr;
    shim::dma_direction direction{};
    shim::dma_queue *dma = nullptr; /* of a card, perhaps another one's, too;
                                       none where it takes no such copies */
    uint32_t number = 0;            /* of the ports that another process uses */
    ucs_list_link_t waiting;        /* next one first */

    /** Log that a job was refused, or that it failed. @return Its status. */
    [[nodiscard]] ucs_status_t report_refusal(size_t length, int error) const;
    [[nodiscard]] ucs_status_t judge_end(size_t length, int error) const
    {
        return ucs_likely(error == 0) ? UCS_OK : report_failure(length, error);
    }
    ucs_status_t report_failure(size_t length, int error) const;
};

/** What a queue was given at once: a copy, or a part of one. */
struct job {
    lane *home; /* whose record this is */
    job *next_free;
    operation *of;
    work_queue *queue;
    uint64_t dst; /* device addresses on the card of that queue */
    uint64_t src;
    size_t length;   /* bytes */
    chunk_ptr chunk; /* that one of them is in, or nullptr */
    /* Where it goes on from the chunk when it has ended, unless this is 0: by
     * another lane's queue, or without one by the CPU. */
    uint64_t target;
    work_queue *then;
    ucs_queue_elem_t in_onward; /* of those that another lane has to fetch */
};

class lane {
public:
    /* How long destruction waits for jobs: longer than the driver lets one run.
     */
    static constexpr uint64_t drain_timeout_us = 60'000'000;

    lane(const lane &)            = delete;
    lane &operator=(const lane &) = delete;
    virtual ~lane()               = default;

    /** What the log calls it, and at which level it tells of a failure. */
    [[nodiscard]] virtual const char *name() const                       = 0;
    [[nodiscard]] virtual ucs_log_level_t failure_level(int error) const = 0;
    /** Why a job has failed, or is refused. */
    [[nodiscard]] virtual int blame(int error) const { return error; }

    /** Whose engines or ports it uses; nullptr: another process's. */
    [[nodiscard]] card *owner() const { return owner_; }

    /** @return As dma_queue::submit. The cookie is the job. */
    [[nodiscard]] virtual int submit(const work_queue &queue, job &which,
                                     uint64_t dst, uint64_t src) = 0;
    /** As of dma_queue, of all queues. */
    [[nodiscard]] virtual unsigned outstanding() const               = 0;
    virtual unsigned poll(shim::dma_completion *ended, unsigned max) = 0;
    [[nodiscard]] virtual int wait_all(uint64_t timeout_us)          = 0;

    /** Have the end of each queue's oldest job signalled.
     *  @return false: one has ended, and can be collected. */
    [[nodiscard]] virtual bool arm(wakeup_event &event) const = 0;
    /** Have the end of a job signalled that makes room: if none of ours is on
     *  the card, another interface has filled it.
     *  @return false when there is room. */
    [[nodiscard]] virtual bool arm_for_room(wakeup_event &) const
    {
        return outstanding() > 0;
    }
    /** Sleep until the oldest job of a queue ends, or a little less. */
    virtual void sleep(const work_queue &) const { util::nap(); }

    /** Operations that use it: it is not destroyed before. */
    unsigned users = 0;

    /** Whether it can be used no more. */
    [[nodiscard]] virtual bool is_over() const { return has_ended_; }
    /** Whether it was told to @ref end. */
    [[nodiscard]] bool has_ended() const { return has_ended_; }
    /** Nothing new is to go over it. */
    void end() { has_ended_ = true; }

    /** The queue for a copy of so many bytes. */
    [[nodiscard]] work_queue &queue_for(shim::dma_direction direction,
                                        size_t length)
    {
        return queue(direction, (length > short_bytes_) ? of_long : of_short);
    }
    static constexpr size_t queue_count = 2 * shim::dma_directions;
    /** Each first in turn: they share the chunks. */
    [[nodiscard]] work_queue &queue_in_turn(size_t i)
    {
        return queues_[(turn_ + i) % queue_count];
    }
    void next_turn() { ++turn_; }
    [[nodiscard]] bool any_waiting()
    {
        return std::any_of(
            queues_.begin(), queues_.end(),
            [](work_queue &each) { return !ucs_list_is_empty(&each.waiting); });
    }

    /** Take a chunk, leaving some for others.
     *  @param ports  That use it, or nullptr. They get at most half of the
     *                chunks that others have left: the peer that they lead to
     *                may be stopped.
     *  @return nullptr when none is left. */
    [[nodiscard]] chunk_ptr take_chunk(size_t leave, lane *ports)
    {
        if ((free_chunks_ <= leave) ||
            ((ports != nullptr) && (ports->lent_ >= free_chunks_ - leave))) {
            return nullptr;
        }
        --free_chunks_;
        free_chunk_->lent_to = ports;
        if (ports != nullptr) {
            ++ports->lent_;
            ports->lender_ = this;
        }
        return chunk_ptr(std::exchange(free_chunk_, free_chunk_->next_free));
    }
    [[nodiscard]] bool has_chunks(size_t more_than) const
    {
        return (lent_ > 0) ? lender_->free_chunks_ > lent_ + more_than
                           : (free_chunks_ > more_than) || chunks_.empty();
    }
    [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }

    /** Let a card reach the staging memory, too. @return 0 or -errno. */
    [[nodiscard]] int share_staging(const card &user);

    /** Address of a chunk as the queues of a lane have it: this one, or one
     *  whose card it was shared with. */
    [[nodiscard]] uint64_t va_for(const lane &user,
                                  const staging_chunk &chunk) const
    {
        return ((user.owner_ == owner_) || (user.owner_ == nullptr))
                   ? chunk.va
                   : shared_[user.owner_->place()].address() +
                         (chunk.data - chunks_.front().data);
    }

    /** Leave the staging memory pinned: a card may still use it. */
    virtual void abandon_staging();

    /** Take a record for a job. @return nullptr when all are in use. */
    [[nodiscard]] job_ptr take_job()
    {
        if (free_job_ == nullptr) {
            return nullptr;
        }
        return job_ptr(std::exchange(free_job_, free_job_->next_free));
    }

protected:
    friend struct give_back;

    enum copies { of_long, of_short };

    lane(card *owner, const transfer_options &options);
    void make_chunks(char *data, uint64_t va, size_t count);
    void make_jobs(size_t count);
    /** @return Whether they have ended. */
    bool wait_for_jobs();
    [[nodiscard]] work_queue &queue(shim::dma_direction direction, copies which)
    {
        return queues_[static_cast<size_t>(direction) * 2 + which];
    }

    card *const owner_;
    const size_t chunk_bytes_;

private:
    const size_t short_bytes_;
    std::vector<staging_chunk> chunks_;
    staging_chunk *free_chunk_ = nullptr; /* the last that came back */
    size_t free_chunks_        = 0;
    job *free_job_             = nullptr;
    std::vector<job> jobs_;                  /* they give chunks back */
    std::vector<shim::registration> shared_; /* of the staging memory, by place
                                                of the card */
    size_t lent_    = 0;                     /* chunks that these ports use, */
    lane *lender_   = nullptr;               /* of this one */
    bool has_ended_ = false;
    size_t turn_    = 0;
    std::array<work_queue, queue_count> queues_;
};

/** The engines of a card of this process. */
class card_lane final : public lane {
public:
    /** @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] static ucs_status_t create(card &owner,
                                             const transfer_options &options,
                                             std::unique_ptr<lane> &lane_p);
    ~card_lane() override { (void)wait_for_jobs(); }

    [[nodiscard]] const char *name() const override
    {
        return owner_->name().c_str();
    }
    [[nodiscard]] ucs_log_level_t failure_level(int) const override
    {
        return owner_->failure_level();
    }
    [[nodiscard]] int submit(const work_queue &queue, job &which, uint64_t dst,
                             uint64_t src) override
    {
        uint64_t id;
        return queue.dma->submit(dst, src, which.length, &which, id);
    }
    [[nodiscard]] unsigned outstanding() const override;
    unsigned poll(shim::dma_completion *ended, unsigned max) override;
    [[nodiscard]] int wait_all(uint64_t timeout_us) override;
    [[nodiscard]] bool arm(wakeup_event &event) const override;
    [[nodiscard]] bool arm_for_room(wakeup_event &event) const override;
    void sleep(const work_queue &queue) const override;
    void abandon_staging() override;

private:
    using lane::lane;
    [[nodiscard]] int make_queues(const transfer_options &sizes);

    shim::pinned_buffer staging_;
    std::vector<std::unique_ptr<shim::dma_queue>> dma_queues_;
};

class port_lane;

/**
 * Another process, which copies between its memory and chunks of host memory
 * that both have, or has its ports write to a card of ours.
 *
 * Of the two addresses of a copy one is the other process's, the other one an
 * offset in the chunks, or what our card has over ports. Implemented by
 * ipc/request_queue.h.
 */
class owner_lane : public lane {
public:
    [[nodiscard]] ucs_log_level_t failure_level(int error) const override
    {
        return ((error == -ESRCH) || (error == -EKEYREVOKED))
                   ? UCS_LOG_LEVEL_DIAG
                   : UCS_LOG_LEVEL_ERROR;
    }

    /** Whether the owner lets this process use memory: asks it once, before
     *  ports are used, by which it would not be asked.
     *  @param again  Ask, although it has answered.
     *  @return 0, -errno, or -EINPROGRESS before it answers. */
    [[nodiscard]] virtual int confirm(remote_memory &of, bool again) = 0;

    /** Ask for a connection of ports. @return 0 or -errno; -EAGAIN: later.
     *  @param number  Names it in @ref work_queue.
     *  @param card    pci_address of the peer's card. */
    [[nodiscard]] virtual int ask_for_ports(uint32_t number, uint32_t card,
                                            const shim::port_offer &offer) = 0;

    /** Take the answer. @return 0, -errno, or -EINPROGRESS before it comes. */
    [[nodiscard]] virtual int ports_answer(uint32_t number,
                                           shim::port_offer &offer_p) = 0;

    /** Ports to its cards were closed with writes under way: some may still
     *  arrive. */
    virtual void note_unquiet_ports() = 0;

    /** Whether the other process has ended, or copies no more: what is
     *  outstanding fails, and nothing is added. */
    [[nodiscard]] virtual bool has_failed() const = 0;
    [[nodiscard]] bool is_over() const final
    {
        return has_ended() || has_failed();
    }

protected:
    /** @param chunks  One after the other. */
    owner_lane(const transfer_options &options, std::span<char> chunks,
               size_t requests);

    /** Copies are given up that it might still make over ports: see to it that
     *  it makes none. */
    void give_up_ports();

private:
    friend class port_lane;

    std::vector<port_lane *> ports_; /* that lead there */
};

/** The ports of a card to one of another process, which write. Their end is
 *  told by polling alone, and comes in any order. */
class port_lane final : public lane {
public:
    /** @param peer    That process, which is asked to write in the other
     *                 direction; nullptr: it asks this one, and whoever knows
     *                 when it ends calls @ref close.
     *  @param number  By which it knows the ports. */
    port_lane(card &owner, std::unique_ptr<shim::connection> over,
              owner_lane *peer, uint32_t number,
              const transfer_options &options);
    ~port_lane() override;

    [[nodiscard]] const char *name() const override
    {
        return owner_->name().c_str();
    }
    /* A process that asks is told of failures. */
    [[nodiscard]] ucs_log_level_t failure_level(int error) const override
    {
        return (peer_ == nullptr) ? UCS_LOG_LEVEL_DIAG
                                  : peer_->failure_level(error);
    }
    /** What ports lead to may have ended. */
    [[nodiscard]] int blame(int error) const override
    {
        return ((peer_ != nullptr) && peer_->is_over()) ? -ESRCH : error;
    }
    [[nodiscard]] int submit(const work_queue &, job &which, uint64_t dst,
                             uint64_t src) override
    {
        return over_->post(dst, src, which.length, &which);
    }
    [[nodiscard]] unsigned outstanding() const override
    {
        return over_->outstanding() + static_cast<unsigned>(ended_.size());
    }
    unsigned poll(shim::dma_completion *ended, unsigned max) override;
    [[nodiscard]] int wait_all(uint64_t timeout_us) override;
    [[nodiscard]] bool arm(wakeup_event &) const override
    {
        return outstanding() == 0;
    }
    /** Whether they work, and the process that they lead to was not seen to
     *  end. No system call. */
    [[nodiscard]] bool is_over() const override
    {
        return has_ended() || !over_->is_usable() ||
               ((peer_ != nullptr) && peer_->is_over());
    }
    /** Nothing is written any more: what is under way fails. */
    void close() { over_->close(); }

private:
    unsigned look(shim::dma_completion *ended, unsigned max);

    /* Polls that find nothing between two looks at the peer. */
    static constexpr unsigned polls_before_look = 1024;

    const std::unique_ptr<shim::connection> over_;
    owner_lane *const peer_;
    unsigned idle_polls_ = 0;
    std::vector<shim::dma_completion> ended_; /* by wait_all */
};

void give_back::operator()(staging_chunk *used) const
{
    lane &home = *used->home;
    if (used->lent_to != nullptr) {
        --used->lent_to->lent_;
    }
    used->next_free = std::exchange(home.free_chunk_, used);
    ++home.free_chunks_;
}

void give_back::operator()(job *used) const
{
    used->chunk.reset();
    used->next_free = std::exchange(used->home->free_job_, used);
}

} // namespace gaudi::base
