/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Transfers whose last writes to other cards have ended, and that are there
 * when the same card has read from there (see posted_to), and where the other
 * card answers early, when its process has flushed it after that.
 */
#pragma once

#include "uct/gaudi/base/transfer/operations.h"

#include <algorithm>

namespace gaudi::base {

class read_backs {
public:
    read_backs()
    {
        ucs_queue_head_init(&written_);
        ucs_queue_head_init(&read_);
    }

    /** Whether a job is a read or a flush: what it covers has ended with it,
     *  unless it goes on: see @ref collect. */
    [[nodiscard]] static bool is_one(const dma_job &job)
    {
        return job.step != posted_step::written;
    }

    /** A job was submitted. Where it is the only write of a transfer, and its
     *  queue has nothing else to do, the read follows it there, if there is
     *  room, and the job ends twice: one read for many writes would wait for
     *  their end. */
    static void follow_lone(dma_job &job);

    /** A job has ended. @return Whether the read that follows is left, whose
     * end its transfer waits for. */
    [[nodiscard]] static bool goes_on(dma_job &job, ucs_status_t status)
    {
        if (!job.is_followed) {
            return false;
        }
        note_write(job, status);
        return true;
    }

    /** The last write of a transfer has ended: its job is kept. */
    void add(dma_job &last)
    {
        last.chunk.reset();
        ucs_queue_push(&written_, &last.in_onward);
    }

    /** A read or a flush has ended: as @ref end, unless it goes on with another
     *  process's flush.
     *  @param status  Changed to an error of a flush here, which was logged. */
    template <typename Ended>
    void collect(dma_job &ended, ucs_status_t &status, Ended &&function)
    {
        if ((status != UCS_OK) || !wants_flush(ended, status)) {
            end(ended, function);
        }
    }

    /** Submit reads, one for all transfers to the same memory, and flushes, as
     *  far as there is room.
     *  @param refused  Called with a job and the status of its transfer when
     *                  none is taken, which was logged.
     *  @return How many were tried. */
    template <typename Refused>
    unsigned submit(Refused &&refused)
    {
        unsigned count = 0;
        for (ucs_queue_head_t *list : {&written_, &read_}) {
            for (; !ucs_queue_is_empty(list); ++count) {
                dma_job &next = first_of(*list);
                const int error =
                    (list == &read_) ? submit_flush() : submit_read();
                if (error == -EAGAIN) {
                    break;
                }
                if (error != 0) {
                    end(next, [&](dma_job &job) {
                        refused(job,
                                job.queue->report_refusal(job.length, error));
                    });
                }
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

    /** Whose queue has no room for the next one; nullptr: there is none. */
    [[nodiscard]] channel *blocked_on()
    {
        return !ucs_queue_is_empty(&written_) ? first_of(written_).queue->home
               : !ucs_queue_is_empty(&read_)
                   ? first_of(read_).owner->plan->by_owner.get()
                   : nullptr;
    }

    /** Call a function with all, which are its. */
    template <typename Ended>
    void give_up(Ended &&ended)
    {
        for (ucs_queue_head_t *list : {&written_, &read_}) {
            while (!ucs_queue_is_empty(list)) {
                end(pull(*list), ended);
            }
        }
    }

private:
    [[nodiscard]] static size_t read_bytes(const dma_job &of)
    {
        return std::min(of.length, size_t{channel::scratch_bytes});
    }
    [[nodiscard]] static dma_job &first_of(ucs_queue_head_t &list)
    {
        return *ucs_queue_head_elem_non_empty(&list, dma_job, in_onward);
    }
    [[nodiscard]] static dma_job &pull(ucs_queue_head_t &list)
    {
        return *ucs_queue_pull_elem_non_empty(&list, dma_job, in_onward);
    }
    static void note_write(dma_job &job, ucs_status_t status);
    bool wants_flush(dma_job &ended, ucs_status_t &status);
    int submit_read();
    int submit_flush();

    ucs_queue_head_t written_; /* oldest first */
    ucs_queue_head_t read_;    /* to be flushed */
};

} // namespace gaudi::base
