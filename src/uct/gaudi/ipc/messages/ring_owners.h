/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The processes that own rings of a mailbox, and whether they live.
 *
 * Each costs a descriptor, or, where there is no room for one, a look into
 * /proc now and then. One thread at a time; knows nothing of rings.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstdint>
#include <map>

namespace gaudi::ipc {

class ring_owners {
public:
    /** @param self  process_id::word_for of this process. */
    explicit ring_owners(uint64_t self) : self_(self) {}

    /** Begin. @param signal  Another descriptor to wait for.
     *  @return false, with errno. */
    [[nodiscard]] bool open(int signal);

    /** Readable when the other descriptor is, or a process has ended that was
     *  not yet found. Owned by this object. */
    [[nodiscard]] int event_fd() const { return events_.get(); }

    /** A process owns one more ring, or one less; words without owner_left.
     *  Of a process that owns none nothing is known. */
    void add(uint64_t owner);
    void remove(uint64_t owner);

    /** Whether a process was found to have ended. */
    [[nodiscard]] bool is_dead(uint64_t owner) const;

    /** Look for processes that have ended. @return Whether some have since the
     *  last call. */
    [[nodiscard]] bool find_dead();

private:
    struct owner {
        /* None: own process, a dead one, or no room for descriptors. */
        util::unique_fd life;
        unsigned rings = 0;
        bool is_dead   = false;
    };

    [[nodiscard]] bool follow(uint64_t word, owner &who);
    void unfollow(owner &who);
    void mark_dead(uint64_t word, owner &who);

    const uint64_t self_;
    util::unique_fd events_; /* epoll: the signal and the pidfds */
    std::map<uint64_t, owner> owners_;
};

} // namespace gaudi::ipc
