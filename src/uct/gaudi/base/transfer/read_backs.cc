#include "uct/gaudi/base/transfer/read_backs.h"

#include <algorithm>
#include <utility>

namespace gaudi::base {

/* Pulled from the list, with all that it covers, unless there is no room.
 * @return 0 or -errno. */
int read_backs::submit_read()
{
    dma_job &last       = first_of(written_);
    channel &by         = *last.queue->home;
    const size_t length = std::min(last.length, size_t{channel::scratch_bytes});
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
bool read_backs::goes_on(dma_job &ended, ucs_status_t &status)
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
