/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One engine's way to one card, or to the cards of another process: its queues
 * and its staging memory.
 *
 * Staging memory is a fixed set of chunks, made once; host memory that is not
 * registered passes through them. Those of a card of ours are pinned for it.
 * Those of another process are in memory that it has, too, and pins for its
 * cards. Used by one thread at a time. Knows neither what an operation is nor
 * how addresses are found.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/transfer/owner_queue.h"
#include "uct/gaudi/base/transfer/port_queue.h"
#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/transfer/wakeup.h"
#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gaudi::base {

class channel;
struct dma_job;
struct transfer;

/** A chunk of staging memory. */
struct staging_chunk {
    channel *home;
    char *data;
    uint64_t va; /* as the queues of the channel have it */
    staging_chunk *next_free;
};

/** Gives to the channel what was taken from it. */
struct give_back {
    inline void operator()(staging_chunk *used) const;
    inline void operator()(dma_job *used) const;
};
using chunk_ptr = std::unique_ptr<staging_chunk, give_back>;
using job_ptr   = std::unique_ptr<dma_job, give_back>;

/** What a card has to do in one direction, and what waits for that: long
 *  copies, or short ones, which do not wait for those if the card has a stream
 *  more. */
struct work_queue {
    channel *home = nullptr;
    shim::dma_direction direction{};
    shim::dma_queue *dma = nullptr; /* perhaps another work queue's, too; none
                                       where the card takes no such copies */
    /* Over which ports another process is asked to write; not over any. */
    static constexpr uint32_t no_link = UINT32_MAX;
    uint32_t link                     = no_link;

    uint64_t in_flight = 0;  /* bytes */
    uint64_t window    = 0;  /* bytes from which on nothing is added */
    ucs_list_link_t waiting; /* of whoever submits, next one first */

    /** Log that a job was refused, or that it failed. @return Its status. */
    [[nodiscard]] ucs_status_t report_refusal(size_t length, int result) const;
    [[nodiscard]] ucs_status_t judge_end(size_t length, int result) const
    {
        return ucs_likely(result == 0) ? UCS_OK
                                       : report_failure(length, result);
    }
    ucs_status_t report_failure(size_t length, int result) const;

    /** Sleep until the oldest job ends, not until all do: the next ones are to
     *  follow before the card has nothing left. */
    inline void sleep(uint32_t longest_us) const;
};

/** How bytes get from one side of a copy to the other. */
enum class way : uint8_t {
    direct,   /**< the card copies between two addresses that it reaches */
    upload,   /**< from the host to a chunk, which the card fetches */
    download, /**< the card fills a chunk, which goes to the host */
    relay     /**< the card fills a chunk, which another card fetches, of this
                   process or the other one */
};

/** One DMA job of a transfer. */
struct dma_job {
    channel *home; /* whose record this is */
    dma_job *next_free;
    transfer *owner;   /* whose bytes it moves */
    work_queue *queue; /* where it was submitted */
    uint64_t dst;      /* device addresses on the card of that queue */
    uint64_t src;
    size_t length;   /* bytes */
    chunk_ptr chunk; /* that one of them is in, or nullptr */
    /* When it has ended, a download or relay goes on: */
    way how;
    uint64_t target;            /* to here, */
    work_queue *relay;          /* or by this queue */
    ucs_queue_elem_t in_onward; /* of those that another card has to fetch */
};

class channel {
public:
    /* How long who goes away waits for jobs: longer than the driver lets one
     * run. */
    static constexpr uint64_t drain_timeout_us = 60'000'000;

    /** Make the queues and the staging memory. */
    [[nodiscard]] static ucs_status_t
    create(card &owner, const transfer_options &options,
           std::unique_ptr<channel> &channel_p);

    /** The same of another process.
     *  @return 0, or why it does not copy for us: -errno. */
    [[nodiscard]] static int create(remote_peer &there,
                                    const transfer_options &options,
                                    std::unique_ptr<channel> &channel_p);

    /** The same of a card's ports to one of another process. It has no staging
     *  memory.
     *  @param peer    The channel to that process.
     *  @param number  That names the ports there. */
    [[nodiscard]] static std::unique_ptr<channel>
    create(card &owner, std::unique_ptr<shim::connection> over, channel *peer,
           uint32_t number, const transfer_options &options);

    /** Waits for jobs that the card still runs. */
    ~channel();

    /** Whose jobs it runs; not of another process. */
    [[nodiscard]] card &owner() const { return *owner_; }
    [[nodiscard]] bool is_of_card() const { return owner_ != nullptr; }

    /** Ports by which another process asks for writes: it hears of failures. */
    void serve_others() { is_for_others_ = true; }

    /** What the log calls it, and at which level it tells of a failure. */
    [[nodiscard]] const char *name() const
    {
        return is_of_card() ? owner_->name().c_str() : others_->name();
    }
    [[nodiscard]] ucs_log_level_t failure_level(int error) const
    {
        return (is_of_card() && (peer_ == nullptr) && !is_for_others_)
                   ? owner_->failure_level()
               : is_for_others_ || (error == -ESRCH) || (error == -EKEYREVOKED)
                   ? UCS_LOG_LEVEL_DIAG
                   : UCS_LOG_LEVEL_ERROR;
    }

    /** Why a job has failed, or is refused: what ports lead to may have ended.
     */
    [[nodiscard]] int blame(int error) const
    {
        return ((peer_ != nullptr) && peer_->is_over()) ? -ESRCH : error;
    }

    /** What copies for us; nullptr: our card. */
    [[nodiscard]] owner_queue *others() const { return others_; }

    /** Planned copies that use it, of another process's: it is not destroyed
     *  before. */
    unsigned users = 0;

    /** Whether the other process copies nothing any more, or the ports do
     *  not. */
    [[nodiscard]] bool is_over() const
    {
        return is_over_ || ((others_ != nullptr) && others_->is_over()) ||
               ((ports_ != nullptr) && !ports_->is_usable()) ||
               ((peer_ != nullptr) && peer_->is_over());
    }
    /** The same of ports, without a system call: they work, and the process
     *  that they lead to was not seen to end. */
    [[nodiscard]] bool is_usable() const
    {
        return !is_over_ && ports_->is_usable() &&
               ((peer_ == nullptr) || !peer_->others_->is_over());
    }
    [[nodiscard]] port_queue &ports() const { return *ports_; }
    [[nodiscard]] bool is_of_ports() const { return ports_ != nullptr; }
    /** Whether it was told to @ref end. */
    [[nodiscard]] bool has_ended() const { return is_over_; }
    /** Nothing new is to go over it; with `at_once` what is under way over
     *  ports fails. */
    void end(bool at_once)
    {
        is_over_ = true;
        if (at_once) {
            ports_->close();
        }
    }

    /** The queue for a copy of so many bytes. */
    [[nodiscard]] work_queue &queue_for(shim::dma_direction direction,
                                        size_t length)
    {
        return queue(direction, (length > short_bytes_) ? of_long : of_short);
    }

    static constexpr size_t queue_count = 2 * shim::dma_directions;
    [[nodiscard]] std::span<work_queue, queue_count> queues()
    {
        return queues_;
    }

    [[nodiscard]] bool any_waiting()
    {
        for (work_queue &queue : queues_) {
            if (!ucs_list_is_empty(&queue.waiting)) {
                return true;
            }
        }
        return false;
    }

    /** Each of them in turn. */
    [[nodiscard]] work_queue &next_queue()
    {
        turn_ = (turn_ + 1) % queue_count;
        return queues_[turn_];
    }

    /** What they submit to, each once. */
    [[nodiscard]] std::span<const std::unique_ptr<shim::dma_queue>>
    dma_queues() const
    {
        return dma_queues_;
    }

    /** Take a chunk, leaving some for others. @return nullptr when none is
     *  left. */
    [[nodiscard]] chunk_ptr take_chunk(size_t leave)
    {
        if (free_chunks_ <= leave) {
            return nullptr;
        }
        --free_chunks_;
        return chunk_ptr(std::exchange(free_chunk_, free_chunk_->next_free));
    }
    [[nodiscard]] size_t free_chunks() const { return free_chunks_; }
    [[nodiscard]] bool has_staging() const { return !chunks_.empty(); }
    [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }

    /** Let a card reach the staging memory, too. @return 0 or -errno. */
    [[nodiscard]] int share_staging(const card &user);

    /** Address of a chunk as the queues of a channel have it: this one, or one
     *  whose card it was shared with. */
    [[nodiscard]] uint64_t va_for(const channel &user,
                                  const staging_chunk &chunk) const
    {
        return ((user.owner_ == owner_) || !user.is_of_card())
                   ? chunk.va
                   : shared_[user.owner().place()].address() +
                         (chunk.data - chunks_.front().data);
    }

    /** Have the end of each queue's oldest job signalled.
     *  @return false: one has ended, and can be collected. */
    [[nodiscard]] bool arm(wakeup_event &event) const;

    /** Have the end of a job signalled that makes room: if none of ours is on
     *  the card, another interface has filled it.
     *  @return false when there is room. */
    [[nodiscard]] bool arm_for_room(wakeup_event &event) const;

    /** Sleep until the oldest job of a queue ends. */
    void sleep(shim::dma_queue &queue, uint32_t longest_us) const;

    /** Leave the staging memory pinned: a card may still use it. */
    void abandon_staging();

    /** Take a record for a job. @return nullptr when all are in use. */
    [[nodiscard]] job_ptr take_job()
    {
        if (free_job_ == nullptr) {
            return nullptr;
        }
        return job_ptr(std::exchange(free_job_, free_job_->next_free));
    }

private:
    friend struct give_back;

    enum copies { of_long, of_short };

    channel(card *owner, const transfer_options &options)
        : owner_(owner), chunk_bytes_(options.chunk_bytes),
          short_bytes_(options.short_bytes)
    {}
    [[nodiscard]] int make_queues(uint64_t window);
    void init_queues(shim::dma_direction direction, shim::dma_queue *all);
    void make_chunks(char *data, uint64_t va, size_t count);
    void make_jobs(size_t count);
    [[nodiscard]] work_queue &queue(shim::dma_direction direction, copies which)
    {
        return queues_[static_cast<size_t>(direction) * 2 + which];
    }

    card *const owner_; /* nullptr: of another process */
    const size_t chunk_bytes_;
    const size_t short_bytes_;
    shim::pinned_buffer staging_; /* of our card */
    std::vector<staging_chunk> chunks_;
    staging_chunk *free_chunk_ = nullptr; /* the last that came back */
    size_t free_chunks_        = 0;
    dma_job *free_job_         = nullptr;
    std::vector<dma_job> jobs_; /* last of these: they give chunks back */
    std::vector<std::unique_ptr<shim::dma_queue>> dma_queues_;
    owner_queue *others_ = nullptr;         /* among them, of another process */
    remote_peer *of_     = nullptr;         /* which is this */
    std::vector<port_queue *> ports_there_; /* of ours, to another process */
    port_queue *ports_ = nullptr;           /* the only one, */
    channel *peer_ = nullptr; /* and what it leads to, which stays meanwhile */
    bool is_over_  = false;
    bool is_for_others_ = false;
    std::vector<shim::registration> shared_; /* of the staging memory, by place
                                                of the card; goes before it */
    work_queue queues_[queue_count];
    size_t turn_ = 0;
};

void work_queue::sleep(uint32_t longest_us) const
{
    home->sleep(*dma, longest_us);
}

void give_back::operator()(staging_chunk *used) const
{
    channel &home   = *used->home;
    used->next_free = std::exchange(home.free_chunk_, used);
    ++home.free_chunks_;
}

void give_back::operator()(dma_job *used) const
{
    used->chunk.reset();
    used->next_free = std::exchange(used->home->free_job_, used);
}

} // namespace gaudi::base
