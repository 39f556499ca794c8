/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What is left of a copy, and what it relies on.
 *
 * Whose copy it is, the operations know; how the next job comes about, the
 * dispatcher.
 */
#pragma once

#include "uct/gaudi/base/transfer/channel.h"
#include "uct/gaudi/base/transfer/counts.h"

#include <memory>

namespace gaudi::base {

/** Lets go of what a copy relies on. */
struct let_go {
    void operator()(host_region *held) const { held->put(); }
    void operator()(device_memory *held) const { held->put(); }
    void operator()(channel *held) const { --held->users; }
    void operator()(remote_memory *held) const { held->release(); }
};
using held_registration = std::unique_ptr<host_region, let_go>;
using held_device       = std::unique_ptr<device_memory, let_go>;
using held_remote       = std::unique_ptr<remote_memory, let_go>;
using held_channel      = std::unique_ptr<channel, let_go>;

struct planned_copy {
    size_t total      = 0; /* bytes, */
    size_t left       = 0; /* of which these are to be moved yet */
    mover moved_by    = mover::card;
    uint64_t dst      = 0; /* as the way has it */
    uint64_t src      = 0;
    way how           = way::direct;
    work_queue *queue = nullptr;    /* of the card */
    work_queue *relay = nullptr;    /* where a relay goes on */
    held_registration registration; /* of host memory here, or nullptr */
    held_device device[2];          /* memory here, so that it is not given out
                                       again while a card copies; or nullptr */
    held_remote remote;             /* memory of another process, or nullptr */
    held_channel by_owner; /* whose chunks it goes through, where that process
                              copies, too, or whose ports it uses; else
                              nullptr */
    channel *staged_by = nullptr; /* whose chunks it goes through over ports */
    chunk_ptr chunk;              /* filled for an upload; bcopy: the bytes */

    /** Whose chunks it goes through, if it does. */
    [[nodiscard]] channel &through(channel &own) const
    {
        return (staged_by != nullptr)  ? *staged_by
               : (by_owner != nullptr) ? *by_owner
                                       : own;
    }

    void set_length(size_t bytes) { total = left = bytes; }

    /** Have the card copy by itself. */
    void go_directly(work_queue &by, uint64_t to, uint64_t from)
    {
        queue = &by;
        how   = way::direct;
        dst   = to;
        src   = from;
    }

    /** So many bytes are under way, or there. */
    void advance(size_t length)
    {
        left -= length;
        dst += length;
        src += length;
    }

    /** Be empty again. */
    void let_go()
    {
        total     = 0;
        left      = 0;
        how       = way::direct;
        moved_by  = mover::card;
        staged_by = nullptr;
        chunk.reset();
        by_owner.reset();
        registration.reset();
        device[0].reset();
        device[1].reset();
        remote.reset();
    }
};

} // namespace gaudi::base
