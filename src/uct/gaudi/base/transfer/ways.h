/**
 * The ways in which bytes get from one side of a copy to the other.
 *
 * A way has the addresses of what is left, each of them of one kind, and knows
 * how the next job comes about; whose copy it is and when a card has room is
 * the dispatcher's. All ways of a card have the same two functions:
 *
 * - prepare fills in the addresses of a job, and a chunk if it goes through
 *   one; it may make the job shorter. UCS_ERR_NO_RESOURCE without a chunk, or
 *   why the bytes cannot be had, which was logged.
 * - submitted goes on behind a job that the card has taken.
 */
#pragma once

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/transfer/channel.h"

#include <memory>
#include <variant>

namespace gaudi::base {

/** The card copies between two addresses that it reaches itself. */
struct direct_copy {
    uint64_t dst; /* device addresses */
    uint64_t src;

    [[nodiscard]] ucs_status_t prepare(dma_job &job, size_t /* leave */)
    {
        job.dst = dst;
        job.src = src;
        return UCS_OK;
    }
    void submitted(dma_job &job)
    {
        dst += job.length;
        src += job.length;
    }
};

/** From the host to the card, which fetches the bytes from a chunk. */
struct upload {
    uint64_t dst; /* device address */
    host_place src;
    chunk_ptr filled = nullptr; /* waits for room in the queue */

    [[nodiscard]] ucs_status_t prepare(dma_job &job, size_t leave);
    void submitted(dma_job &job);
};

/** From the card, which puts the bytes into a chunk, and on from there. */
template <typename Target>
struct out_of_card {
    Target dst;
    uint64_t src; /* device address */

    [[nodiscard]] ucs_status_t prepare(dma_job &job, size_t leave)
    {
        if (!job.take_chunk(leave)) {
            return UCS_ERR_NO_RESOURCE;
        }
        job.dst  = job.chunk->va;
        job.src  = src;
        job.then = dst;
        return UCS_OK;
    }
    void submitted(dma_job &job)
    {
        dst.advance(job.length);
        src += job.length;
    }
};

/** To the host. */
using download = out_of_card<host_place>;

/** To another card, which reaches the chunk, too. */
using relay = out_of_card<onward_leg>;

/** Between host memory of this process and of another one: no card does
 *  anything, the kernel copies. */
struct kernel_copy {
    host_place there;
    char *here;
    bool put; /* to the other process */

    /** Copy so many bytes. @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] ucs_status_t run(size_t length);
};

/** Lets go of what a copy relies on. */
struct let_go {
    void operator()(host_memory *held) const { held->put(); }
    void operator()(remote_memory *held) const { held->release(); }
};
using held_registration = std::unique_ptr<host_memory, let_go>;
using held_remote       = std::unique_ptr<remote_memory, let_go>;

/** The rest of a copy. */
struct planned_copy {
    size_t left        = 0;       /* bytes */
    work_queue *queue  = nullptr; /* of the card; nullptr for a kernel_copy */
    bool between_cards = false;   /* by a card which reaches the other one */
    std::variant<direct_copy, upload, download, relay, kernel_copy> way;
    held_registration registration; /* of host memory here, or nullptr */
    held_remote remote;             /* memory of another process, or nullptr */

    /** Be empty again. */
    void let_go()
    {
        left          = 0;
        between_cards = false;
        way           = direct_copy{}; /* gives a chunk back */
        registration.reset();
        remote.reset();
    }
};

} // namespace gaudi::base
