/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/dispatcher.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gaudi::base {

namespace {

/* Completions collected at a time. */
constexpr unsigned poll_batch = 16;
/* Polls before a synchronous copy sleeps in the driver, and for how long. */
constexpr unsigned idle_polls    = 256;
constexpr uint32_t idle_sleep_us = 1000;

} // namespace

dispatcher::dispatcher(const transfer_options &options,
                       const channel_set &channels, operations &all)
    : piece_bytes_(options.piece_bytes), channels_(channels), operations_(all)
{
    ucs_queue_head_init(&onward_);
}

void dispatcher::enqueue(operation &op)
{
    work_queue *queue = op.copy.queue;
    const bool first  = ucs_list_is_empty(&queue->waiting);
    ucs_list_add_tail(&queue->waiting, &op.in_queue);
    if (first) {
        while (submit_piece(*queue)) {}
    }
}

/* Set the addresses of a job, and take and fill the chunk that it goes through.
 * @return UCS_OK; UCS_ERR_NO_RESOURCE without a chunk; or why the bytes cannot
 * be had, which was logged. */
ucs_status_t dispatcher::prepare(dma_job &job, planned_copy &copy, size_t leave)
{
    job.how = copy.how;
    job.dst = copy.dst;
    job.src = copy.src;
    if (copy.how == way::direct) {
        return UCS_OK;
    }
    /* An upload's chunk is filled, and waits for room in the queue. */
    const bool is_filled = (copy.how == way::upload) && (copy.chunk != nullptr);
    channel &through     = copy.through(*job.home);
    job.chunk  = is_filled ? std::move(copy.chunk) : through.take_chunk(leave);
    job.length = std::min(job.length, through.chunk_bytes());
    if (job.chunk == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (copy.how == way::upload) {
        job.src = job.chunk->va;
        if (!is_filled) {
            std::memcpy(job.chunk->data, reinterpret_cast<void *>(copy.src),
                        job.length);
        }
        return UCS_OK;
    }
    job.dst    = through.va_for(*job.home, *job.chunk);
    job.target = copy.dst;
    job.relay  = copy.relay;
    return UCS_OK;
}

/* Submit the next job of a copy. False when there is no room for it now; true
 * with an error in the owner's status when it failed. */
bool dispatcher::submit_next(transfer &owner, planned_copy &copy, size_t leave)
{
    work_queue &queue = *copy.queue;
    if (queue.in_flight >= queue.window) {
        return false;
    }
    job_ptr job = queue.home->take_job();
    if (job == nullptr) {
        return false;
    }
    job->owner          = &owner;
    job->queue          = &queue;
    job->length         = std::min(copy.left, piece_bytes_);
    ucs_status_t status = prepare(*job, copy, leave);
    if (status == UCS_OK) {
        const int ret = submit(queue, *job, job->dst, job->src);
        if (ret == 0) {
            ++owner.in_flight;
            queue.in_flight += job->length;
            copy.advance(job->length);
            (void)job.release(); /* the queue's, until it has ended */
            return true;
        }
        status = (ret == -EAGAIN) ? UCS_ERR_NO_RESOURCE
                                  : queue.report_refusal(job->length, ret);
        if (copy.how == way::upload) {
            copy.chunk = std::move(job->chunk);
        }
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        return false;
    }
    owner.status = status;
    return true;
}

bool dispatcher::copy_at_once(channel &by, bool to_card, uint64_t va,
                              void *host, size_t length, ucs_status_t &status_p)
{
    work_queue &queue =
        by.queue_for(to_card ? shim::dma_direction::host_to_device
                             : shim::dma_direction::device_to_host,
                     length);
    if ((queue.dma->outstanding() > 0) || (length > by.chunk_bytes())) {
        return false;
    }
    const chunk_ptr chunk = by.take_chunk(0);
    if (chunk == nullptr) {
        return false;
    }
    if (to_card) {
        std::memmove(chunk->data, host, length);
    }
    uint64_t id;
    const int ret =
        queue.dma->submit(to_card ? va : chunk->va, to_card ? chunk->va : va,
                          length, nullptr, id);
    if (ucs_unlikely(ret != 0)) {
        status_p =
            (ret == -EAGAIN) ? UCS_OK : queue.report_refusal(length, ret);
        return ret != -EAGAIN;
    }
    shim::dma_completion ended;
    for (unsigned idle = 0; queue.dma->poll(&ended, 1) == 0;) {
        if (++idle > idle_polls) {
            queue.sleep(idle_sleep_us);
        }
    }
    status_p = queue.judge_end(length, ended.status);
    if ((status_p == UCS_OK) && !to_card) {
        std::memmove(host, chunk->data, length);
    }
    return true;
}

void dispatcher::run(transfer &work, planned_copy &copy)
{
    const work_queue *relay = (copy.how == way::relay) ? copy.relay : nullptr;
    unsigned idle           = 0;
    work.plan               = &copy;
    while (((work.status == UCS_OK) && (copy.left > 0)) ||
           (work.in_flight > 0)) {
        /* One after the other: a chunk that comes back is in the cache. */
        bool moved = (work.status == UCS_OK) && (copy.left > 0) &&
                     submit_next(work, copy, 0);
        moved |= (collect(*copy.queue->dma) > 0);
        if (relay != nullptr) {
            moved |= (collect(*relay->dma) > 0);
        }
        moved |= (submit_onward() > 0);
        if (moved) {
            idle = 0;
            continue;
        }
        /* The room may be taken by jobs of other directions and cards. */
        collect_all();
        submit_onward();
        if (++idle > idle_polls) {
            copy.queue->sleep(idle_sleep_us);
            if (relay != nullptr) {
                relay->sleep(idle_sleep_us);
            }
        }
    }
}

/* The first operation of a list has got a piece further: the next one's turn.
 */
void dispatcher::take_turns(ucs_list_link_t &list, operation &op)
{
    if (op.status != UCS_OK) {
        operations_.end_if_done(op);
        return;
    }
    ucs_list_del(&op.in_queue);
    if (op.copy.left > 0) {
        ucs_list_add_tail(&list, &op.in_queue);
    } else {
        operations_.end_if_done(op);
    }
}

/* Submit a piece of the operation whose turn it is. False when there is none,
 * or no room. */
bool dispatcher::submit_piece(work_queue &queue)
{
    if (ucs_list_is_empty(&queue.waiting)) {
        return false;
    }
    operation &op = *ucs_list_head(&queue.waiting, operation, in_queue);
    if (!submit_next(op, op.copy, reserved_chunks)) {
        return false;
    }
    take_turns(queue.waiting, op);
    return true;
}

void dispatcher::submit_all()
{
    while (operation *op = operations_.take_ready()) {
        enqueue(*op);
    }
    for (const auto &to : channels_) {
        if (!to->any_waiting()) {
            continue;
        }
        /* All queues in turn: they share the staging memory. */
        for (size_t stuck = 0; stuck < channel::queue_count;) {
            stuck = submit_piece(to->next_queue()) ? 0 : stuck + 1;
        }
    }
}

/* Submit jobs that have to go on, as far as there is room. */
unsigned dispatcher::submit_onward()
{
    unsigned count = 0;
    for (; !ucs_queue_is_empty(&onward_); ++count) {
        dma_job &job =
            *ucs_queue_head_elem_non_empty(&onward_, dma_job, in_onward);
        work_queue *queue  = job.relay;
        const uint64_t src = job.chunk->home->va_for(*queue->home, *job.chunk);
        const int ret      = submit(*queue, job, job.target, src);
        if (ret == -EAGAIN) {
            break;
        }
        (void)ucs_queue_pull_non_empty(&onward_);
        if (ret == 0) {
            queue->in_flight += job.length;
            job.queue = queue;
            job.dst   = job.target;
            job.how   = way::direct;
        } else {
            finish(job, queue->report_refusal(job.length, ret));
        }
    }
    return count;
}

/* Let go of a job's record and chunk, and count it as ended. */
void dispatcher::finish(dma_job &job, ucs_status_t status)
{
    transfer &owner = *job.owner;
    /* The first failure tells why; others may follow from it. */
    if (owner.status == UCS_OK) {
        owner.status = status;
    }
    give_back()(&job);
    --owner.in_flight;
    if (owner.is_operation) {
        operations_.end_if_done(static_cast<operation &>(owner));
    }
}

unsigned dispatcher::collect(shim::dma_queue &queue)
{
    shim::dma_completion ended[poll_batch];
    const unsigned count = queue.poll(ended, poll_batch);
    for (unsigned i = 0; i < count; ++i) {
        auto &job           = *static_cast<dma_job *>(ended[i].cookie);
        ucs_status_t status = job.queue->judge_end(job.length, ended[i].status);

        job.queue->in_flight -= job.length;
        note_ports(job, status);
        if ((status == UCS_OK) && (job.how == way::relay)) {
            ucs_queue_push(&onward_, &job.in_onward);
            continue;
        }
        if ((status == UCS_OK) && (job.how == way::download)) {
            std::memcpy(reinterpret_cast<void *>(job.target), job.chunk->data,
                        job.length);
        }
        finish(job, status);
    }
    return count;
}

unsigned dispatcher::collect_all()
{
    unsigned count = 0;
    for (const auto &from : channels_) {
        for (const auto &queue : from->dma_queues()) {
            if (queue->outstanding() > 0) {
                count += collect(*queue);
            }
        }
    }
    return count;
}

void dispatcher::advance()
{
    collect_all();
    submit_onward();
    submit_all();
}

void dispatcher::advance_all()
{
    while (collect_all() > 0) {}
    submit_onward();
    submit_all();
}

bool dispatcher::has_chunks() const
{
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const auto &each) {
                           return (each->free_chunks() > reserved_chunks) ||
                                  !each->has_staging();
                       });
}

bool dispatcher::arm(wakeup_event &event)
{
    bool armed = true;
    for (const auto &each : channels_) {
        if (!each->arm(event)) {
            return false;
        }
        for (work_queue &queue : each->queues()) {
            armed &=
                ucs_list_is_empty(&queue.waiting) || each->arm_for_room(event);
        }
    }
    if (armed && !ucs_queue_is_empty(&onward_)) {
        const dma_job &job =
            *ucs_queue_head_elem_non_empty(&onward_, dma_job, in_onward);
        armed = job.relay->home->arm_for_room(event);
    }
    return armed;
}

void dispatcher::cancel_waiting()
{
    operations_.cancel_fenced();
    for (const auto &each : channels_) {
        for (work_queue &queue : each->queues()) {
            operations_.cancel(queue.waiting);
        }
    }
}

bool dispatcher::drain()
{
    bool drained = true;
    for (const auto &each : channels_) {
        for (const auto &queue : each->dma_queues()) {
            while ((queue->outstanding() > 0) &&
                   (queue->wait_all(channel::drain_timeout_us) == 0)) {
                collect(*queue);
            }
            drained &= (queue->outstanding() == 0);
        }
    }
    while (!ucs_queue_is_empty(&onward_)) {
        finish(*ucs_queue_pull_elem_non_empty(&onward_, dma_job, in_onward),
               UCS_ERR_CANCELED);
    }
    return drained;
}

} // namespace gaudi::base
