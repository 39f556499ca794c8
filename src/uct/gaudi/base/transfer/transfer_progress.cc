/* How a transfer engine keeps cards busy, and completes what has ended. */
#include "uct/gaudi/base/transfer/transfer.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/host_copy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gaudi::base {

namespace {

/* Completions collected at a time. */
constexpr unsigned poll_batch = 16;

/* Why a copy of host memory of another process failed. That a process is gone
 * is for its endpoints to say. */
ucs_status_t report_process_error(const util::process_memory &process,
                                  uint64_t there, size_t length, int result)
{
    ucs_log((result == -ESRCH) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
            "gaudi: cannot copy %zu bytes at %#lx of process %d: %s", length,
            there, process.pid(), std::strerror(-result));
    return to_status(result);
}

/* Fill a chunk with what the card is to fetch. */
ucs_status_t fill(const copy_cursor &cursor, char *chunk, size_t length)
{
    if (cursor.process == nullptr) {
        util::copy_host_bytes(chunk, cursor.host, length);
        return UCS_OK;
    }
    const int ret = cursor.process->read(chunk, cursor.there, length);
    return (ret == 0) ? UCS_OK
                      : report_process_error(*cursor.process, cursor.there,
                                             length, ret);
}

/* Take out of a chunk what the card has put there. */
ucs_status_t drain(const segment &job)
{
    const char *chunk = job.home->chunk_data(job.chunk);
    if (job.process == nullptr) {
        util::copy_host_bytes(job.host, chunk, job.length);
        return UCS_OK;
    }
    const int ret = job.process->write(job.target, chunk, job.length);
    return (ret == 0) ? UCS_OK
                      : report_process_error(*job.process, job.target,
                                             job.length, ret);
}

} // namespace

/* Submit the next piece of a copy. False when there is no room for it now; true
 * with an error in the owner's status when it failed. */
bool transfer_engine::submit_next(transfer &owner, copy_cursor &cursor,
                                  size_t leave)
{
    channel &way   = *cursor.way;
    dma_lane &lane = *cursor.lane;
    size_t length  = std::min(cursor.left, options_.piece_bytes);
    uint64_t dst   = cursor.dst;
    uint64_t src   = cursor.src;
    int chunk      = -1;

    if (lane.in_flight >= lane.window) {
        return false;
    }
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
            if (cursor.upload) {
                owner.status = fill(cursor, way.chunk_data(chunk), length);
                if (owner.status != UCS_OK) {
                    way.give_chunk(chunk);
                    way.give_segment(job);
                    return true;
                }
            }
        }
        cursor.filled               = chunk;
        (cursor.upload ? src : dst) = way.chunk_va(chunk);
    }

    const bool drained = cursor.staged && !cursor.upload;
    *job               = {.owner   = &owner,
                          .home    = &way,
                          .lane    = &lane,
                          .chunk   = chunk,
                          .length  = length,
                          .host    = drained ? cursor.host : nullptr,
                          .process = drained ? cursor.process : nullptr,
                          .onward  = cursor.onward,
                          .target = (cursor.onward != nullptr) ? cursor.target : cursor.there,
                          .next   = nullptr};
    uint64_t id;
    const int ret = lane.queue->submit(dst, src, length, job, id);
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
    lane.in_flight += length;
    cursor.filled = -1;
    cursor.dst += length;
    cursor.src += length;
    cursor.target += length;
    cursor.there += length;
    cursor.host += (cursor.host != nullptr) ? length : 0;
    cursor.left -= length;
    return true;
}

/* Copy between host memory and device memory that was found before, as one job,
 * through a chunk: what @ref copy_planned does, for little more than the job.
 * False when anything is in the way, and nothing was started. */
bool transfer_engine::copy_short(bool upload, const void *device, void *host,
                                 size_t length, ucs_status_t &status_p)
{
    using direction = shim::dma_direction;
    const memory_location *where =
        find_again(upload ? role::target : role::source, device, length);
    if ((where == nullptr) || (where->owner->slot() >= channels_.size())) {
        return false;
    }
    channel *way = channels_[where->owner->slot()].get();
    if ((way == nullptr) || (length > way->chunk_bytes())) {
        return false;
    }
    dma_lane &lane = lane_of(
        *way, upload ? direction::host_to_device : direction::device_to_host,
        length);
    const int chunk = (lane.in_flight < lane.window) ? way->take_chunk(0) : -1;
    if (chunk < 0) {
        return false;
    }
    segment *job = way->take_segment();
    if (job == nullptr) {
        way->give_chunk(chunk);
        return false;
    }

    char *const data = way->chunk_data(chunk);
    if (upload) {
        util::copy_host_bytes(data, host, length);
    }
    const auto there  = reinterpret_cast<uintptr_t>(device);
    const uint64_t va = way->chunk_va(chunk);
    bool ended        = false;
    const int ret     = lane.queue->submit_and_look(
            upload ? there : va, upload ? va : there, length, job, ended);
    if ((ret == 0) && !ended) {
        transfer work;
        *job           = {.owner   = &work,
                          .home    = way,
                          .lane    = &lane,
                          .chunk   = chunk,
                          .length  = length,
                          .host    = upload ? nullptr : static_cast<char *>(host),
                          .process = nullptr,
                          .onward  = nullptr,
                          .target  = 0,
                          .next    = nullptr};
        work.in_flight = 1;
        lane.in_flight += length;
        copy_cursor nothing_left;
        nothing_left.lane = &lane;
        finish_copy(work, nothing_left);
        status_p = work.status;
        return true;
    }
    if (ended && !upload) {
        util::copy_host_bytes(host, data, length);
    }
    way->give_segment(job);
    way->give_chunk(chunk);
    status_p = UCS_OK;
    return ret == 0;
}

/* Have the kernel copy the next bytes. */
void transfer_engine::copy_by_kernel(transfer &owner, copy_cursor &cursor,
                                     size_t length)
{
    const int ret =
        cursor.upload ? cursor.process->write(cursor.there, cursor.host, length)
                      : cursor.process->read(cursor.host, cursor.there, length);
    if (ret != 0) {
        owner.status =
            report_process_error(*cursor.process, cursor.there, length, ret);
        return;
    }
    cursor.there += length;
    cursor.host += length;
    cursor.left -= length;
}

/* Have the kernel copy a piece, of as many operations as that takes. */
void transfer_engine::copy_waiting()
{
    size_t budget = options_.piece_bytes;
    while ((budget > 0) && !ucs_list_is_empty(&kernels_)) {
        operation *op       = ucs_list_head(&kernels_, operation, in_queue);
        const size_t length = std::min(op->cursor.left, budget);
        copy_by_kernel(op->work, op->cursor, length);
        budget -= length;
        advance(kernels_, *op);
    }
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
    bool watched = true;
    for (const auto &way : channels_) {
        if (way == nullptr) {
            continue;
        }
        for (const auto &queue : way->queues()) {
            if (queue->outstanding() == 0) {
                continue;
            }
            const uint64_t job = queue->oldest_job();
            if (job == 0) {
                return false; /* it has ended meanwhile */
            }
            event_->watch(way->owner().device(), job);
        }
        for (dma_lane &lane : way->lanes()) {
            watched &= ucs_list_is_empty(&lane.waiting) || watch_room(*way);
        }
    }
    return watched && ((onward_first_ == nullptr) ||
                       watch_room(*onward_first_->onward->home));
}

/* Have a job watched whose end makes room on a card: if none of ours is there,
 * another interface has filled it. False when there is room. */
bool transfer_engine::watch_room(const channel &way)
{
    for (const auto &queue : way.queues()) {
        if (queue->outstanding() > 0) {
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

/* The first operation of a list has got a piece further: the next one's turn.
 */
void transfer_engine::advance(ucs_list_link_t &list, operation &op)
{
    if (op.work.status != UCS_OK) {
        end_if_done(op);
        return;
    }
    ucs_list_del(&op.in_queue);
    if (op.cursor.left > 0) {
        ucs_list_add_tail(&list, &op.in_queue);
    } else {
        end_if_done(op);
    }
}

/* Submit a piece of the operation whose turn it is. False when there is none,
 * or no room. */
bool transfer_engine::submit_piece(dma_lane &lane)
{
    if (ucs_list_is_empty(&lane.waiting)) {
        return false;
    }
    operation *op = ucs_list_head(&lane.waiting, operation, in_queue);
    if (!submit_next(op->work, op->cursor, reserved_chunks)) {
        return false;
    }
    advance(lane.waiting, *op);
    return true;
}

void transfer_engine::submit_all()
{
    while (!ucs_list_is_empty(&fenced_)) {
        operation *op = ucs_list_head(&fenced_, operation, in_queue);
        if (!has_landed(op->after)) {
            break;
        }
        ucs_list_del(&op->in_queue);
        enqueue(*op);
    }
    for (const auto &way : channels_) {
        /* All lanes in turn: they share the staging memory. */
        for (size_t stuck = 0;
             (way != nullptr) && (stuck < channel::lane_count);) {
            stuck = submit_piece(way->next_lane()) ? 0 : stuck + 1;
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
        dma_lane &lane = *job.onward;
        const card &to = lane.home->owner();
        uint64_t id;
        const int ret =
            lane.queue->submit(job.target, job.home->chunk_va_on(to, job.chunk),
                               job.length, &job, id);
        if (ret == -EAGAIN) {
            break;
        }
        take_onward();
        if (ret == 0) {
            lane.in_flight += job.length;
            job.lane   = &lane;
            job.onward = nullptr;
            continue;
        }
        ucs_error("%s: cannot submit a copy of %zu bytes: %s",
                  to.name().c_str(), job.length, std::strerror(-ret));
        finish(job, to_status(ret));
    }
    return count;
}

unsigned transfer_engine::reap(shim::dma_queue &queue)
{
    shim::dma_completion ended[poll_batch];
    const unsigned count = queue.poll(ended, poll_batch);

    for (unsigned i = 0; i < count; ++i) {
        auto *job           = static_cast<segment *>(ended[i].cookie);
        ucs_status_t status = UCS_OK;

        job->lane->in_flight -= job->length;
        if (ended[i].status != 0) {
            ucs_error("%s: a DMA copy of %zu bytes failed: %s",
                      job->lane->home->owner().name().c_str(), job->length,
                      std::strerror(-ended[i].status));
            status = to_status(ended[i].status);
        } else if (job->onward != nullptr) {
            send_onward(*job);
            continue;
        } else if ((job->host != nullptr) || (job->process != nullptr)) {
            status = drain(*job);
        }
        finish(*job, status);
    }
    return count;
}

unsigned transfer_engine::reap_all()
{
    unsigned count = 0;
    for (const auto &way : channels_) {
        if (way == nullptr) {
            continue;
        }
        for (const auto &queue : way->queues()) {
            if (queue->outstanding() > 0) {
                count += reap(*queue);
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
    submit_all();
    copy_waiting();
    return complete_ended();
}

bool transfer_engine::has_resources()
{
    return has_operation() && has_landed(fence_) &&
           std::all_of(channels_.begin(), channels_.end(), [](const auto &way) {
               return (way == nullptr) ||
                      (way->free_chunks() > reserved_chunks);
           });
}

} // namespace gaudi::base
