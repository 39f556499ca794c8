/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/read_backs.h"

#include "uct/gaudi/base/transfer/operations.h"

#include <utility>

namespace gaudi::base {

void read_backs::follow_lone(dma_job &job)
{
    work_queue &queue   = *job.queue;
    const size_t length = read_bytes(job);
    uint64_t id;
    job.is_followed = (job.peer != posted_to::nobody) &&
                      (job.how != way::relay) && (job.owner->plan->left == 0) &&
                      (job.owner->in_flight == 1) &&
                      (queue.dma->outstanding() == 1) &&
                      (queue.dma->submit(queue.home->scratch_va(),
                                         job.dst + job.length - length, length,
                                         &job, id, true) == 0);
    queue.in_flight += job.is_followed ? length : 0;
}

void read_backs::note_write(dma_job &job, ucs_status_t status)
{
    job.is_followed = false;
    job.step        = posted_step::read_back;
    job.length      = read_bytes(job);
    if (job.owner->status == UCS_OK) {
        job.owner->status = status;
    }
}

/* Pulled from the list, with all that it covers, unless there is no room.
 * @return 0 or -errno. */
int read_backs::submit_read()
{
    dma_job &last       = first_of(written_);
    channel &by         = *last.queue->home;
    const size_t length = read_bytes(last);
    work_queue &queue =
        by.queue_for(shim::dma_direction::device_to_host, length);
    uint64_t id;
    const int error = queue.dma->submit(
        by.scratch_va(), last.dst + last.length - length, length, &last, id);
    if (error == -EAGAIN) {
        return error;
    }
    (void)pull(written_);
    if (error != 0) {
        return error;
    }
    last.queue  = &queue;
    last.length = length;
    last.step   = posted_step::read_back;
    queue.in_flight += length;
    ucs_queue_head_t others;
    ucs_queue_head_init(&others);
    while (!ucs_queue_is_empty(&written_)) {
        dma_job &other = pull(written_);
        if ((other.peer == last.peer) && (other.queue->home == &by)) {
            other.next_free = std::exchange(last.covered, &other);
        } else {
            ucs_queue_push(&others, &other.in_onward);
        }
    }
    ucs_queue_splice(&written_, &others);
    return 0;
}

/* Whether another process has to flush. */
bool read_backs::wants_flush(dma_job &ended, ucs_status_t &status)
{
    const planned_copy &plan = *ended.owner->plan;
    if (ended.step == posted_step::flushed) {
        return false;
    }
    if (plan.wants_flush) {
        ucs_queue_push(&read_, &ended.in_onward);
        return true;
    }
    if ((plan.flushes != nullptr) &&
        plan.flushes->device().capabilities().answers_early) {
        status = ended.queue->judge_end(ended.length,
                                        plan.flushes->device().flush());
    }
    return false;
}

/* The same of a flush, for all that were read back together. */
int read_backs::submit_flush()
{
    dma_job &read            = first_of(read_);
    const planned_copy &plan = *read.owner->plan;
    const int error = plan.by_owner->others()->flush(*plan.remote, &read);
    if (error == -EAGAIN) {
        return error;
    }
    (void)pull(read_);
    read.queue = &plan.by_owner->queue_for(shim::dma_direction::host_to_device,
                                           read.length);
    read.step  = posted_step::flushed;
    if (error == 0) {
        read.queue->in_flight += read.length;
    }
    return error;
}

} // namespace gaudi::base
