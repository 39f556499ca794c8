/* How a transfer engine keeps cards busy, and completes what has ended. */
#include "uct/gaudi/base/host_copy.h"
#include "uct/gaudi/base/status.h"
#include "uct/gaudi/base/transfer.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

namespace {

/* Completions collected at a time. */
constexpr unsigned poll_batch = 16;

} // namespace

/* Submit the next piece of a copy. False when there is no room for it now. */
bool transfer_engine::submit_next(transfer &owner, copy_cursor &cursor,
                                  size_t leave)
{
    channel &way = *cursor.way;
    const bool upload =
        (cursor.direction == shim::dma_direction::host_to_device);
    size_t length = cursor.left;
    uint64_t dst  = cursor.dst;
    uint64_t src  = cursor.src;
    int chunk     = -1;

    segment *job = way.take_segment();
    if (job == nullptr) {
        return false;
    }
    if (cursor.staged) {
        length = std::min(length, way.chunk_bytes());
        chunk  = cursor.filled;
        if (chunk < 0) {
            chunk = way.take_chunk(leave);
            if (chunk < 0) {
                way.give_segment(job);
                return false;
            }
            if (upload) {
                copy_host_bytes(way.chunk_data(chunk), cursor.host, length);
            }
        }
        cursor.filled        = chunk;
        (upload ? src : dst) = way.chunk_va(chunk);
    }

    *job = {.owner  = &owner,
            .home   = &way,
            .chunk  = chunk,
            .host   = (cursor.staged && !upload) ? cursor.host : nullptr,
            .length = length,
            .onward = cursor.onward,
            .target = cursor.target,
            .next   = nullptr};
    uint64_t id;
    const int ret =
        way.queue(cursor.direction).submit(dst, src, length, job, id);
    if (ret != 0) {
        way.give_segment(job);
        if (ret == -EAGAIN) {
            return false;
        }
        ucs_error("%s: cannot submit a copy of %zu bytes: %s",
                  way.owner().name().c_str(), length, std::strerror(-ret));
        owner.status = to_status(ret);
        return true;
    }

    ++owner.in_flight;
    cursor.filled = -1;
    cursor.dst += length;
    cursor.src += length;
    cursor.target += length;
    cursor.host += (cursor.host != nullptr) ? length : 0;
    cursor.left -= length;
    return true;
}

/* Whether the bytes of everything up to an operation are where they belong.
 * Completions may still have to be called. */
bool transfer_engine::has_landed(uint64_t sequence)
{
    operation *op;
    ucs_list_for_each(op, &all_, in_all)
    {
        if (op->sequence > sequence) {
            return true;
        }
        if (!op->has_ended && (op->what != kind::flush_all)) {
            return false;
        }
    }
    return true;
}

/* Have every job watched that progress waits for. False when there is something
 * to do already, or nothing to watch although something waits: the caller has
 * to try again. */
bool transfer_engine::watch_jobs()
{
    for (const auto &way : channels_) {
        for (size_t i = 0; (way != nullptr) && (i < channel::directions); ++i) {
            const auto direction = static_cast<shim::dma_direction>(i);
            const auto &queue    = way->queue(direction);
            if (queue.outstanding() == 0) {
                continue;
            }
            const uint64_t job = queue.oldest_job();
            if (job == 0) {
                return false; /* it has ended meanwhile */
            }
            event_->watch(way->owner().device(), job);
        }
    }
    if ((onward_first_ != nullptr) && !watch_room(*onward_first_->onward)) {
        return false;
    }
    return ucs_list_is_empty(&waiting_) ||
           watch_room(
               *ucs_list_head(&waiting_, operation, in_queue)->cursor.way);
}

/* Have a job watched whose end makes room on a card: if none of ours is there,
 * another interface has filled it. False when there is room. */
bool transfer_engine::watch_room(channel &way)
{
    for (size_t i = 0; i < channel::directions; ++i) {
        const auto direction = static_cast<shim::dma_direction>(i);
        if (way.queue(direction).outstanding() > 0) {
            return true;
        }
    }
    shim::device &dev  = way.owner().device();
    const uint64_t job = dev.blocking_job();
    if (job == 0) {
        return false;
    }
    event_->watch(dev, job);
    return true;
}

void transfer_engine::submit_queued()
{
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &waiting_, in_queue)
    {
        if (!has_landed(op->after)) {
            return;
        }
        while ((op->work.status == UCS_OK) && (op->cursor.left > 0)) {
            if (!submit_next(op->work, op->cursor, reserved_chunks)) {
                return;
            }
        }
        if (op->work.status == UCS_OK) {
            ucs_list_del(&op->in_queue);
        } else {
            end_if_done(*op);
        }
    }
}

/* Let go of a job's record and chunk, and count it as ended. */
void transfer_engine::finish(segment &job, ucs_status_t status)
{
    transfer &owner = *job.owner;
    if (status != UCS_OK) {
        owner.status = status;
    }
    if (job.chunk >= 0) {
        job.home->give_chunk(job.chunk);
    }
    job.home->give_segment(&job);
    --owner.in_flight;
    if (owner.is_operation) {
        end_if_done(reinterpret_cast<operation &>(owner));
    }
}

/* The bytes of a job are in its chunk: the second card has to fetch them. */
void transfer_engine::send_onward(segment &job)
{
    *onward_last_ = &job;
    onward_last_  = &job.next;
}

/* Take the first job that has to go on out of the list. */
segment &transfer_engine::take_onward()
{
    segment &job  = *onward_first_;
    onward_first_ = job.next;
    job.next      = nullptr;
    if (onward_first_ == nullptr) {
        onward_last_ = &onward_first_;
    }
    return job;
}

/* Submit jobs that have to go on, as far as there is room. */
unsigned transfer_engine::submit_onward()
{
    unsigned count = 0;
    for (; onward_first_ != nullptr; ++count) {
        segment &job   = *onward_first_;
        channel &way   = *job.onward;
        const card &to = way.owner();
        uint64_t id;
        const int ret =
            way.queue(shim::dma_direction::host_to_device)
                .submit(job.target, job.home->chunk_va_on(to, job.chunk),
                        job.length, &job, id);
        if (ret == -EAGAIN) {
            break;
        }
        take_onward();
        if (ret == 0) {
            job.onward = nullptr;
            continue;
        }
        ucs_error("%s: cannot submit a copy of %zu bytes: %s",
                  to.name().c_str(), job.length, std::strerror(-ret));
        finish(job, to_status(ret));
    }
    return count;
}

unsigned transfer_engine::reap(channel &way, shim::dma_direction direction)
{
    shim::dma_completion ended[poll_batch];
    const unsigned count = way.queue(direction).poll(ended, poll_batch);

    for (unsigned i = 0; i < count; ++i) {
        auto *job           = static_cast<segment *>(ended[i].cookie);
        ucs_status_t status = UCS_OK;

        if (ended[i].status != 0) {
            ucs_error("%s: a DMA copy of %zu bytes failed: %s",
                      way.owner().name().c_str(), job->length,
                      std::strerror(-ended[i].status));
            status = to_status(ended[i].status);
        } else if (job->onward != nullptr) {
            send_onward(*job);
            continue;
        } else if (job->host != nullptr) {
            copy_host_bytes(job->host, way.chunk_data(job->chunk), job->length);
        }
        finish(*job, status);
    }
    return count;
}

unsigned transfer_engine::reap_all()
{
    unsigned count = 0;
    for (const auto &way : channels_) {
        for (size_t i = 0; (way != nullptr) && (i < channel::directions); ++i) {
            const auto direction = static_cast<shim::dma_direction>(i);
            if (way->queue(direction).outstanding() > 0) {
                count += reap(*way, direction);
            }
        }
    }
    return count;
}

/* Put an operation where progress() completes it. */
void transfer_engine::end(operation &op)
{
    if (!op.has_ended) {
        op.has_ended = true;
        ucs_list_add_tail(&ended_, &op.in_queue);
    }
}

void transfer_engine::end_if_done(operation &op)
{
    if ((op.work.status != UCS_OK) && (op.cursor.left > 0)) {
        op.cursor.left = 0;
        ucs_list_del(&op.in_queue);
    }
    if ((op.cursor.left == 0) && (op.work.in_flight == 0)) {
        end(op);
    }
}

/* A flush that has become the oldest of its list has nothing to wait for. */
void transfer_engine::end_reached_flush(ucs_list_link_t &list, kind what)
{
    if (ucs_list_is_empty(&list)) {
        return;
    }
    operation *oldest = (what == kind::flush_all)
                            ? ucs_list_head(&list, operation, in_all)
                            : ucs_list_head(&list, operation, in_domain);
    if (oldest->what == what) {
        end(*oldest);
    }
}

void transfer_engine::complete(operation &op)
{
    uct_completion_t *completion = op.completion;
    const ucs_status_t status    = op.work.status;
    flush_domain *domain         = op.domain;

    if (op.what != kind::flush_domain) {
        ucs_list_del(&op.in_all);
    }
    if ((op.what != kind::flush_all) && (domain != nullptr)) {
        ucs_list_del(&op.in_domain);
    }
    if ((op.what == kind::unpack) && (op.work.status == UCS_OK)) {
        op.unpack(op.unpack_arg, op.cursor.way->chunk_data(op.chunk),
                  op.length);
    }
    if (op.chunk >= 0) {
        op.cursor.way->give_chunk(op.chunk);
    }
    release(op.cursor);
    ucs_list_add_head(&free_, &op.in_queue);

    /* Both lists lost a member. */
    end_reached_flush(all_, kind::flush_all);
    if (domain != nullptr) {
        end_reached_flush(domain->operations, kind::flush_domain);
    }

    /* Last: it may start operations, and destroy endpoints. */
    if (completion != nullptr) {
        uct_invoke_completion(completion, status);
    }
}

unsigned transfer_engine::complete_ended()
{
    unsigned count = 0;
    while (!ucs_list_is_empty(&ended_)) {
        operation *op = ucs_list_extract_head(&ended_, operation, in_queue);
        complete(*op);
        ++count;
    }
    return count;
}

unsigned transfer_engine::progress()
{
    if (is_inherited()) {
        return 0;
    }
    reap_all();
    submit_onward();
    submit_queued();
    return complete_ended();
}

bool transfer_engine::has_resources()
{
    return !ucs_list_is_empty(&free_) && has_landed(fence_) &&
           std::all_of(channels_.begin(), channels_.end(), [](const auto &way) {
               return (way == nullptr) ||
                      (way->free_chunks() > reserved_chunks);
           });
}

} // namespace gaudi::base
