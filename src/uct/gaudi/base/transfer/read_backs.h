/**
 * Transfers whose last writes to other cards have ended, and that are there
 * when the same card has read from there: see posted_to.
 */
#pragma once

#include "uct/gaudi/base/transfer/channel.h"

namespace gaudi::base {

class read_backs {
public:
    read_backs() { ucs_queue_head_init(&waiting_); }

    /** Whether a job is one: what it covers has ended with it. */
    [[nodiscard]] static bool is_one(const dma_job &job)
    {
        return job.is_read_back;
    }

    /** The last write of a transfer has ended: its job is kept. */
    void add(dma_job &last)
    {
        last.chunk.reset();
        ucs_queue_push(&waiting_, &last.in_onward);
    }

    /** Submit reads, one for all transfers to the same memory, as far as there
     *  is room.
     *  @param refused  Called with a job and the status of its transfer when a
     *                  card takes none, which was logged.
     *  @return How many were tried. */
    template <typename Refused>
    unsigned submit(Refused &&refused)
    {
        unsigned count = 0;
        for (; !ucs_queue_is_empty(&waiting_); ++count) {
            dma_job &next   = first();
            const int error = submit_first();
            if (error == -EAGAIN) {
                break;
            }
            if (error != 0) {
                end(next, [&](dma_job &job) {
                    refused(job, job.queue->report_refusal(job.length, error));
                });
            }
        }
        return count;
    }

    /** Call a function with a job that has been read back, and with all that it
     *  covers. They are the function's. */
    template <typename Ended>
    static void end(dma_job &read_back, Ended &&ended)
    {
        dma_job *other = read_back.covered;
        for (dma_job *job = &read_back; job != nullptr;) {
            dma_job *const next = other;
            other               = (next != nullptr) ? next->next_free : nullptr;
            job->peer           = posted_to::nobody;
            ended(*job);
            job = next;
        }
    }

    [[nodiscard]] bool is_empty() { return ucs_queue_is_empty(&waiting_); }

    /** The one that is next to be submitted, unless it is empty. */
    [[nodiscard]] dma_job &first()
    {
        return *ucs_queue_head_elem_non_empty(&waiting_, dma_job, in_onward);
    }

    /** Take it. */
    [[nodiscard]] dma_job &pull()
    {
        return *ucs_queue_pull_elem_non_empty(&waiting_, dma_job, in_onward);
    }

private:
    int submit_first();

    ucs_queue_head_t waiting_; /* oldest first */
};

} // namespace gaudi::base
