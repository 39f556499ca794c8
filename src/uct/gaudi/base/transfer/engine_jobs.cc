/* SPDX-License-Identifier: BSD-3-Clause */
/* How the bytes of operations move: pieces are submitted to lanes, go on from
 * chunks, and end. */
#include "uct/gaudi/base/transfer/engine.h"

#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

/* Completions collected at a time: few, so that the first pieces of a message
 * go on while the card copies the next. A software card copies when it is
 * polled. */
static constexpr unsigned poll_batch = 4;

/* Set the addresses of a job, and take and fill the chunk that it goes through.
 * @return Whether there is a chunk, if one is needed. */
bool transfer_engine::prepare(job &next, operation &op)
{
    next.dst    = op.dst;
    next.src    = op.src;
    next.target = 0;
    next.then   = nullptr;
    next.length = std::min(op.left, options_.piece_bytes);
    if (op.how == way::direct) {
        return true;
    }
    lane &through        = *op.through;
    next.length          = std::min(next.length, through.chunk_bytes());
    const bool takes_all = waits_for_fence_;
    /* An upload's chunk is filled, and waits for room in the queue. */
    const bool is_filled = (op.how == way::upload) && (op.chunk != nullptr);
    next.chunk           = is_filled
                               ? std::move(op.chunk)
                               : through.take_chunk(
                                     (takes_all || (op.what == operation_kind::call))
                                         ? 0
                                         : planner::reserved_chunks,
                           takes_all ? nullptr : op.ports());
    if (next.chunk == nullptr) {
        return false;
    }
    if (op.how == way::upload) {
        next.src = next.chunk->va;
        if (!is_filled) {
            std::memcpy(next.chunk->data, reinterpret_cast<void *>(op.src),
                        next.length);
        }
        return true;
    }
    next.dst    = through.va_for(*op.queue->home, *next.chunk);
    next.target = op.dst;
    next.then   = (op.how == way::relay) ? op.relay : nullptr;
    return true;
}

/* Submit the next job of an operation. False when there is no room for it now;
 * true with an error in its status when it failed. */
bool transfer_engine::submit_next(operation &op)
{
    work_queue &queue = *op.queue;
    lane &of          = (op.how == way::relay) ? *op.through : *queue.home;
    job_ptr next      = of.take_job();
    if ((next == nullptr) || !prepare(*next, op)) {
        return false;
    }
    next->of      = &op;
    next->queue   = &queue;
    const int ret = queue.home->submit(queue, *next, next->dst, next->src);
    if (ucs_likely(ret == 0)) {
        ++op.in_flight;
        op.advance(next->length);
        (void)next.release(); /* the queue's, until it has ended */
        return true;
    }
    if (op.how == way::upload) {
        op.chunk = std::move(next->chunk);
    }
    if (ret == -EAGAIN) {
        return false;
    }
    op.status = queue.report_refusal(next->length, ret);
    return true;
}

/* First in, first out. @return Whether anything was submitted. */
void transfer_engine::submit_waiting(work_queue &queue)
{
    while (!ucs_list_is_empty(&queue.waiting)) {
        operation &op = *ucs_list_head(&queue.waiting, operation, in_queue);
        if (!submit_next(op)) {
            return;
        }
        if (op.left == 0) {
            ucs_list_del(&op.in_queue);
        }
        operations_.end_if_done(op);
    }
}

/* Submit jobs that have to go on, as far as there is room. */
void transfer_engine::submit_onward()
{
    if (ucs_queue_is_empty(&onward_)) {
        return;
    }
    ucs_queue_head_t waiting;
    ucs_queue_head_init(&waiting);
    ucs_queue_splice(&waiting, &onward_);
    while (!ucs_queue_is_empty(&waiting)) {
        job &next = *ucs_queue_pull_elem_non_empty(&waiting, job, in_onward);
        work_queue &queue = *next.then;
        if (next.of->status != UCS_OK) { /* it was given up meanwhile */
            finish(next, UCS_OK);
            continue;
        }
        const uint64_t src = next.chunk->home->va_for(*queue.home, *next.chunk);
        const int ret      = queue.home->submit(queue, next, next.target, src);
        if (ret == -EAGAIN) {
            ucs_queue_push(&onward_, &next.in_onward);
            continue; /* those for other lanes need not wait */
        }
        next.queue  = &queue;
        next.target = 0;
        if (ret != 0) {
            finish(next, queue.report_refusal(next.length, ret));
        }
    }
}

/* Let go of a job's record and chunk, and count it as ended. */
void transfer_engine::finish(job &ended, ucs_status_t status)
{
    operation &op = *ended.of;
    /* The first failure tells why; others may follow from it. */
    if (op.status == UCS_OK) {
        op.status = status;
    }
    give_back()(&ended);
    --op.in_flight;
    operations_.end_if_done(op);
}

unsigned transfer_engine::collect(lane &from)
{
    shim::dma_completion ended[poll_batch];
    const unsigned count = from.poll(ended, poll_batch);
    for (unsigned i = 0; i < count; ++i) {
        auto &one           = *static_cast<job *>(ended[i].cookie);
        ucs_status_t status = one.queue->judge_end(one.length, ended[i].status);

        /* A get over ports that fails is all that tells of the owner's: they
         * are used no more. */
        if (ucs_unlikely((status == UCS_ERR_IO_ERROR) ||
                         (status == UCS_ERR_TIMED_OUT)) &&
            (one.queue->number != 0)) {
            one.of->by->end();
        }
        if ((status == UCS_OK) && (one.target != 0) &&
            (one.of->status == UCS_OK)) {
            if (one.then != nullptr) {
                ucs_queue_push(&onward_, &one.in_onward);
                continue;
            }
            std::memcpy(reinterpret_cast<void *>(one.target), one.chunk->data,
                        one.length);
        }
        finish(one, status);
    }
    return count;
}

unsigned transfer_engine::collect_all()
{
    unsigned count = 0;
    for (const auto &from : lanes_) {
        if (from->outstanding() > 0) {
            count += collect(*from);
        }
    }
    return count;
}

/* Collect what has ended, and submit what there is room for. @return Whether
 * anything had. */
bool transfer_engine::advance()
{
    const unsigned count = collect_all();
    submit_onward();
    for (const auto &to : lanes_) {
        if (to->any_waiting()) {
            for (size_t i = 0; i < lane::queue_count; ++i) {
                submit_waiting(to->queue_in_turn(i));
            }
            to->next_turn();
        }
    }
    return count > 0;
}

/* Whether every lane has a chunk for one operation more. */
bool transfer_engine::has_chunks() const
{
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto &each) {
        return each->has_chunks(planner::reserved_chunks);
    });
}

/* Have the end of every job signalled that waits, or is waited for.
 * @return false when there is something to do already, or nothing that could be
 * signalled although something waits: try again. */
bool transfer_engine::arm_lanes()
{
    bool any_under_way = false;
    for (const auto &each : lanes_) {
        if (!each->arm(*event_)) {
            return false;
        }
        any_under_way = any_under_way || (each->outstanding() > 0);
    }
    const auto may_sleep = [&](const operation &op) {
        const bool lacks_chunk =
            (op.how != way::direct) && (op.chunk == nullptr) &&
            !op.through->has_chunks(planner::reserved_chunks);
        return lacks_chunk ? any_under_way
                           : op.queue->home->arm_for_room(*event_);
    };
    for (const auto &each : lanes_) {
        for (size_t i = 0; i < lane::queue_count; ++i) {
            ucs_list_link_t &waiting = each->queue_in_turn(i).waiting;
            if (!ucs_list_is_empty(&waiting) &&
                !may_sleep(*ucs_list_head(&waiting, operation, in_queue))) {
                return false;
            }
        }
    }
    const job *next;
    ucs_queue_for_each(next, &onward_, in_onward)
    {
        if (!next->then->home->arm_for_room(*event_)) {
            return false;
        }
    }
    return true;
}

/* Wait for the jobs that are under way. @return false when some do not end. */
bool transfer_engine::drain()
{
    bool drained = true;
    for (const auto &each : lanes_) {
        while ((each->outstanding() > 0) &&
               (each->wait_all(lane::drain_timeout_us) == 0)) {
            collect(*each);
        }
        drained &= (each->outstanding() == 0);
    }
    while (!ucs_queue_is_empty(&onward_)) {
        finish(*ucs_queue_pull_elem_non_empty(&onward_, job, in_onward),
               UCS_ERR_CANCELED);
    }
    return drained;
}

} // namespace gaudi::base
