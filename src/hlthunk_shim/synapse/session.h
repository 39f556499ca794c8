/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What we have of SynapseAI for one acquisition of its device: a stream for
 * each direction, and events, each of which stands for one copy at a time.
 *
 * Nothing of it is given back to SynapseAI: its streams are synchronised when
 * they are destroyed, which waits for what the framework runs, and all of them
 * go with the device. So queues that come and go take the same ones. Any
 * thread; SynapseAI's functions are called under no lock.
 */
#pragma once

#include "hlthunk_shim/engine/dma_engine.h"
#include "hlthunk_shim/synapse/functions.h"
#include "util/locks.h"

#include <array>
#include <atomic>
#include <memory>
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

/** An event, and the copy that it was recorded for last. */
struct job_event {
    synEventHandle event = nullptr;
    std::atomic<ticket> job{ticket::none}; /**< none: it is free */
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

    /** Take an event for a copy, which it names.
     *  @return synSuccess; synAllResourcesTaken when SynapseAI, or the session,
     *          has none before a copy ends. */
    [[nodiscard]] synStatus take(job_event *&event_p);

    /** Its copy has ended, or was not started. */
    void give_back(job_event &event);

    /** The event of a copy, or of a later one. */
    [[nodiscard]] job_event &event_of(ticket job)
    {
        return events_[static_cast<uint64_t>(job) % max_events];
    }

    /** Whether a status of something that worked before means that the device
     *  is gone, or in reset, or was released. May ask SynapseAI. */
    [[nodiscard]] bool is_end(synStatus status) const;

    /** It is not to be used again. */
    void end() { ended_.store(true); }
    [[nodiscard]] bool has_ended() const { return ended_.load(); }

private:
    static constexpr size_t max_events = 4096;

    synapse_session(const synapse_functions &functions, int fd)
        : api_(functions), fd_(fd)
    {}

    void find_memory(const synDeviceInfoV2 &info);

    const synapse_functions &api_;
    const int fd_;
    std::optional<synapse_memory> memory_;
    std::array<synStreamHandle, dma_directions> streams_{};
    std::atomic<bool> ended_{false};

    util::brief_lock lock_;         /* of what follows; leaf */
    uint64_t jobs_ = 0;             /* that there were */
    size_t used_   = 0;             /* events, the first of them */
    std::vector<job_event *> free_; /* of these, the last one first */
    std::array<job_event, max_events> events_;
};

} // namespace gaudi::shim
