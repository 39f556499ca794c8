/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What we have of SynapseAI for one acquisition of its device: a stream for
 * each direction, and events, each of which stands for one job at a time.
 *
 * Nothing of it is given back to SynapseAI: its streams are synchronised when
 * they are destroyed, which waits for what the framework runs, and all of them
 * go with the device. So queues that come and go take the same ones. Any
 * thread; SynapseAI's functions are called under no lock.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/synapse/functions.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace gaudi::shim {

/** SynapseAI has one per process. */
constexpr synDeviceId device_id = 0;

/** Device memory that SCAL has from the driver as one block, and SynapseAI
 *  gives out in parts. */
struct synapse_memory {
    uint64_t start      = 0; /**< device address */
    uint64_t end        = 0;
    uint64_t exportable = 0; /**< what the driver knows the block by; 0: it is
                                  not known */
};

/** An event, and the job that it was recorded for last. */
struct job_event {
    synEventHandle event = nullptr;
    std::atomic<uint64_t> job{0}; /**< 0: it has been collected */
};

/** Events of one queue, in turn. They are made when they are first needed:
 *  SynapseAI has a number of them for the whole process, and while it has none
 *  left the ring goes round with those it has. */
struct event_ring {
    explicit event_ring(unsigned depth) : events(depth) {}

    unsigned number = 0; /**< among the rings of the session */
    uint64_t jobs   = 0; /**< that there were, over all its queues */
    size_t made     = 0; /**< the first of them */
    size_t next     = 0; /**< of the next job */
    std::vector<job_event> events;

    /** It belongs to a job now. */
    void take(job_event &event)
    {
        event.job.store(++jobs, std::memory_order_release);
        ++next;
    }
};

class synapse_session {
public:
    /** @param functions  Must outlive it.
     *  @param info       Of the acquired device.
     *  @return 0 or -errno. */
    [[nodiscard]] static int
    create(const synapse_functions &functions, const synDeviceInfoV2 &info,
           std::shared_ptr<synapse_session> &session_p);

    [[nodiscard]] const synapse_functions &api() const { return api_; }
    [[nodiscard]] int fd() const { return fd_; }

    /** None: SynapseAI and SCAL do not tell. */
    [[nodiscard]] const std::optional<synapse_memory> &memory() const
    {
        return memory_;
    }

    [[nodiscard]] synStreamHandle stream(dma_direction direction) const
    {
        return streams_[static_cast<size_t>(direction)];
    }

    /** Take a ring for a queue. @return 0 or -errno. */
    [[nodiscard]] int take_ring(unsigned depth, event_ring *&ring_p);

    /** The event of the next job.
     *  @return synSuccess; synAllResourcesTaken when there is none before a job
     *          of the ring is collected, or SynapseAI has one to give. */
    [[nodiscard]] synStatus find_free(event_ring &ring,
                                      job_event *&event_p) const;

    /** Give them back, when all jobs were collected. */
    void return_ring(event_ring &ring);

    /** The name of a job, whose event is that of the ring. */
    [[nodiscard]] static ticket make_ticket(const event_ring &ring,
                                            const job_event &event);

    /** The event of a job; nullptr when the job was collected. */
    [[nodiscard]] const job_event *find(ticket of) const;

    /** Whether @ref find would still find it. */
    [[nodiscard]] static bool is_current(ticket of, const job_event &event);

    /** Whether a status of something that worked before means that the device
     *  is gone, or in reset, or was released. May ask SynapseAI. */
    [[nodiscard]] bool is_end(synStatus status) const;

    /** It is not to be used again. */
    void end() { ended_.store(true); }
    [[nodiscard]] bool has_ended() const { return ended_.load(); }

private:
    static constexpr size_t max_rings = 4096;

    synapse_session(const synapse_functions &functions, int fd)
        : api_(functions), fd_(fd)
    {}

    void find_memory(const synDeviceInfoV2 &info);

    const synapse_functions &api_;
    const int fd_;
    std::optional<synapse_memory> memory_;
    std::array<synStreamHandle, dma_directions> streams_{};
    std::atomic<bool> ended_{false};

    std::mutex rings_lock_; /* which are free */
    size_t ring_count_ = 0;
    std::array<std::unique_ptr<event_ring>, max_rings> rings_;
    std::vector<event_ring *> free_rings_;
};

} // namespace gaudi::shim
