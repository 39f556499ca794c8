/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * SynapseAI in this process: whether it is there, and which card it has.
 *
 * It has at most one device, whose descriptor is the process's only one of that
 * card. Any thread. @ref look calls SynapseAI, and so is for callers without
 * locks: SynapseAI maps and unmaps memory, and opens and closes cards, which
 * come to UCM's and the driver's hooks.
 */
#pragma once

#include "hlthunk_shim/synapse/session.h"
#include "util/process.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gaudi::shim {

class synapse_runtime {
public:
    /** SynapseAI is acquiring a card, for which it has opened a descriptor. */
    void opened(int fd);

    /** A descriptor is being closed. */
    void closed(int fd);

    /** See which card it has by now. Without locks, and not from what SynapseAI
     *  calls. */
    void look();

    /** What is known of it since @ref look was called last. */
    struct knowledge {
        int opened = -1; /**< descriptor of a card that it is acquiring */
        int fd     = -1; /**< of the card that it has; -1: none */
        /** What we have of it there; nullptr: it could not be had. */
        std::shared_ptr<synapse_session> session;
        /** Why @ref acquire said -ENOTSUP; empty if it did not. */
        std::string why_not;
    };
    [[nodiscard]] knowledge known() const
    {
        const std::lock_guard<std::mutex> guard(lock_);
        return known_;
    }

    /**
     * Acquire a card, where nobody has done so.
     *
     * @param bus_id  Of the card.
     * @return 0; -EBUSY when the card is in use; -ENOTSUP when there is no
     *         SynapseAI, or it has a card already; else -errno.
     */
    [[nodiscard]] int acquire(const std::string &bus_id);

    /** Undo that. */
    void release();

private:
    [[nodiscard]] bool is_ready(const synapse_functions &api, int fd) const;
    [[nodiscard]] const synapse_functions *find(bool load, std::string &why_p);
    int refuse(const std::string &why);
    void note_acquisition(int fd);

    mutable std::mutex lock_;                      /* of what follows; leaf */
    std::unique_ptr<const synapse_functions> api_; /* once it was seen */
    knowledge known_;
    bool initialised_ = false; /* by us */
    int acquired_     = -1;    /* descriptor that it has, or is acquiring */
    std::optional<util::in_use> in_use_; /* while there is one */
};

/** While one lives, what SynapseAI asks of the driver on this thread is for us,
 *  and no doing of the application. */
class own_synapse_call {
public:
    own_synapse_call() { ++depth_; }
    ~own_synapse_call() { --depth_; }
    own_synapse_call(const own_synapse_call &)            = delete;
    own_synapse_call &operator=(const own_synapse_call &) = delete;

    [[nodiscard]] static bool is_running() { return depth_ > 0; }

private:
    static inline thread_local unsigned depth_ = 0;
};

} // namespace gaudi::shim
