/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/engine.h"

#include "uct/gaudi/base/ucx/packing.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/locks.h"

#include <algorithm>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

#include <sched.h>

namespace gaudi::base {

namespace {

/* A synchronous copy to or from the host as short as this always goes through
 * staging memory. */
constexpr size_t staged_bytes = 2048;
/* Limit of settings, so that a typing error is noticed. */
constexpr size_t max_staging_bytes = size_t{1} << 30;
/* How long a short operation waits for another process, seconds. */
constexpr double short_wait_s = 0.05;
/* Polls before it lets the other process have the core. */
constexpr unsigned polls_before_nap = 256;

} // namespace

transfer_engine::transfer_engine(const transfer_options &options)
    : options_(options), planner_(channels_, options), channels_(options_),
      operations_(options.max_ops, counts_),
      dispatcher_(options, channels_, operations_)
{}

ucs_status_t transfer_engine::create(const transfer_options &options,
                                     std::unique_ptr<transfer_engine> &engine_p)
{
    constexpr size_t least_chunks = dispatcher::reserved_chunks + 1;
    if ((options.chunks < least_chunks) || (options.chunk_bytes == 0) ||
        (options.chunk_bytes > max_staging_bytes / options.chunks)) {
        ucs_error("gaudi: STAGING_COUNT=%u and STAGING_CHUNK=%zu: at least %zu "
                  "chunks are needed, and at most %zu bytes in all",
                  options.chunks, options.chunk_bytes, least_chunks,
                  max_staging_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    engine_p.reset(new transfer_engine(options));
    return UCS_OK;
}

ucs_status_t transfer_engine::create(card &home,
                                     const transfer_options &options,
                                     std::unique_ptr<transfer_engine> &engine_p)
{
    std::unique_ptr<transfer_engine> created;
    ucs_status_t status = create(options, created);
    if (status != UCS_OK) {
        return status;
    }
    created->planner_.use_cards(home);
    channel *made;
    status = created->channels_.get(home, made);
    if (status == UCS_OK) {
        engine_p = std::move(created);
    }
    return status;
}

transfer_engine::~transfer_engine()
{
    dispatcher_.cancel_waiting();
    const bool drained = dispatcher_.drain();
    if (!drained) {
        /* A job may use the staging memory of another card. */
        for (const auto &each : channels_) {
            each->abandon_staging();
        }
    }
    operations_.complete_ended();
    if (!drained) {
        operations_.disown();
    }
}

/* Hand a planned operation to whoever moves the bytes, or completes it. */
void transfer_engine::begin(operation &op)
{
    if (op.copy.left == 0) {
        operations_.end_if_done(op);
    } else if (operations_.may_begin(op)) {
        dispatcher_.enqueue(op);
    }
}

ucs_status_t transfer_engine::copy(const side &dst, const side &src,
                                   size_t length)
{
    if (length == 0) {
        return UCS_OK;
    }
    ucs_status_t status = UCS_OK;
    while (!is_past_fence()) {
        dispatcher_.advance();
    }
    if (dst.is_plain() && src.is_plain()) {
        /* The CPU copies host memory to host memory, and nothing else. */
        std::memmove(dst.pointer(), src.pointer(), length);
        counts_.add(mover::cpu, length);
        return UCS_OK;
    }
    if (length <= staged_bytes) {
        const bool to_card = src.is_plain();
        const side &device = to_card ? dst : src;
        if (device.is_device && (device.remote == nullptr) &&
            (to_card || dst.is_plain())) {
            device_location where;
            channel *by;
            status = planner_.find_device(device, length, where, by);
            if (status != UCS_OK) {
                return status;
            }
            if (dispatcher::copy_at_once(*by, to_card, device.address,
                                         (to_card ? src : dst).pointer(),
                                         length, status)) {
                if (status == UCS_OK) {
                    counts_.add(mover::card, length);
                }
                return status;
            }
        }
    }
    transfer work;
    planned_copy copy;
    status =
        planner_.plan(dst, src, length,
                      (length > staged_bytes) ? host_side::find_registration
                                              : host_side::stage,
                      copy);
    if (status != UCS_OK) {
        return status;
    }
    dispatcher_.run(work, copy);
    if (work.status == UCS_OK) {
        counts_.add(copy.moved_by, length);
    }
    return work.status;
}

/* Of a copy from or to memory of another process. From host memory, or to it,
 * at most a chunk. */
ucs_status_t transfer_engine::copy_piece(flush_domain &domain, const side &dst,
                                         const side &src, size_t length)
{
    const bool is_put   = (dst.remote != nullptr);
    const side &here    = is_put ? src : dst;
    const bool is_bcopy = here.is_plain();
    if (!(is_put && is_bcopy) && (domain.late > 0)) {
        return UCS_ERR_NO_RESOURCE;
    }
    const ucs_time_t end = ucs_get_time() + ucs_time_from_sec(short_wait_s);
    unsigned polls       = 0;
    /* false: it has lasted long enough. */
    const auto poll = [&] {
        dispatcher_.advance();
        if (++polls > polls_before_nap) {
            util::nap();
        }
        return (domain.late == 0) && (ucs_get_time() < end);
    };
    operation *op;
    ucs_status_t status;
    do {
        op     = nullptr;
        status = UCS_ERR_NO_RESOURCE;
        if (!is_past_fence()) {
            continue;
        }
        if (is_bcopy) {
            status = prepare_bcopy(is_put ? dst : src, is_put, length, op);
        } else if ((op = operations_.take()) != nullptr) {
            status =
                planner_.plan(dst, src, length, host_side::stage, op->copy);
        }
        if ((status != UCS_OK) && (op != nullptr)) {
            operations_.put_back(*op);
        }
    } while ((status == UCS_ERR_NO_RESOURCE) && poll());
    if (status != UCS_OK) {
        return status;
    }
    const bool unpacks = is_bcopy && !is_put;
    if (is_bcopy && is_put) {
        std::memcpy(op->copy.chunk->data, here.pointer(), length);
    }
    operations_.start(*op, &domain,
                      unpacks ? operation_kind::unpack : operation_kind::copy,
                      nullptr);
    op->unpack_arg = here.pointer();
    op->unpack     = [](void *to, const void *data, size_t bytes) {
        std::memcpy(to, data, bytes);
    };
    if (is_bcopy) {
        begin_bcopy(*op,
                    is_put ? shim::dma_direction::host_to_device
                           : shim::dma_direction::device_to_host,
                    length);
    } else {
        begin(*op);
    }
    while (!op->has_ended && poll()) {}
    if (op->has_ended) {
        return operations_.take_ended(*op);
    }
    /* The caller's memory is no more ours. */
    op->unpack = [](void *, const void *, size_t) {};
    operations::leave(*op);
    return (is_bcopy && is_put) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

ucs_status_t transfer_engine::copy_short(flush_domain &domain, const side &dst,
                                         const side &src, size_t length)
{
    if ((dst.remote == nullptr) && (src.remote == nullptr)) {
        return copy(dst, src, length);
    }
    const bool is_bcopy = dst.is_plain() || src.is_plain();
    const size_t most   = is_bcopy ? options_.chunk_bytes : length;
    side to             = dst;
    side from           = src;
    ucs_status_t status = UCS_OK;
    for (size_t done = 0; (status == UCS_OK) && (done < length); done += most) {
        to.address   = dst.address + done;
        from.address = src.address + done;
        status = copy_piece(domain, to, from, std::min(most, length - done));
    }
    return status;
}

ucs_status_t transfer_engine::start(flush_domain &domain, const side &dst,
                                    const side &src, size_t length,
                                    uct_completion_t *completion)
{
    ucs_status_t status = UCS_OK;
    operation *op       = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (length == 0) {
        /* It ends in order with the others. */
    } else if (!dst.is_plain() || !src.is_plain()) {
        status = planner_.plan(dst, src, length, host_side::find_registration,
                               op->copy);
        if (status != UCS_OK) {
            operations_.put_back(*op);
            return status;
        }
    } else if (is_past_fence()) {
        std::memmove(dst.pointer(), src.pointer(), length);
        op->copy.total    = length;
        op->copy.moved_by = mover::cpu;
    } else {
        operations_.put_back(*op);
        return UCS_ERR_NO_RESOURCE;
    }
    operations_.start(*op, &domain, operation_kind::copy, completion);
    begin(*op);
    return UCS_INPROGRESS;
}

ucs_status_t transfer_engine::fail_later(flush_domain &domain, ucs_status_t why,
                                         uct_completion_t *completion)
{
    /* Without a card it was clear beforehand. */
    const bool is_fate = (why == UCS_ERR_IO_ERROR) ||
                         (why == UCS_ERR_TIMED_OUT) ||
                         (why == UCS_ERR_CONNECTION_RESET) ||
                         ((why == UCS_ERR_NO_DEVICE) && planner_.has_card());
    if (!is_fate || (completion == nullptr)) {
        return why;
    }
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    operations_.start(*op, &domain, operation_kind::copy, completion);
    op->copy.left = 0;
    op->status    = why;
    begin(*op);
    return UCS_INPROGRESS;
}

/* Get ready to copy between device memory and a chunk. On an error nothing is
 * held. */
ucs_status_t transfer_engine::prepare_bcopy(const side &device, bool to_device,
                                            size_t length, operation *&op_p)
{
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    channel *by;
    uint64_t va;
    ucs_status_t status =
        planner_.reach(device, length, to_device, by, va, op->copy);
    if (status == UCS_OK) {
        op->copy.chunk = by->take_chunk(dispatcher::reserved_chunks);
        status = (op->copy.chunk == nullptr) ? UCS_ERR_NO_RESOURCE : UCS_OK;
    }
    if (status != UCS_OK) {
        operations_.put_back(*op);
        return status;
    }
    op->copy.dst = to_device ? va : op->copy.chunk->va;
    op->copy.src = to_device ? op->copy.chunk->va : va;
    op_p         = op;
    return UCS_OK;
}

/* Start such a copy, once its length is known. */
void transfer_engine::begin_bcopy(operation &op, shim::dma_direction direction,
                                  size_t length)
{
    op.copy.set_length(length);
    if (op.copy.staged_by == nullptr) {
        op.copy.queue = &op.copy.chunk->home->queue_for(direction, length);
    }
    begin(op);
}

ssize_t transfer_engine::start_packed(flush_domain &domain, const side &dst,
                                      uct_pack_callback_t pack, void *arg)
{
    ucs_status_t status = UCS_OK;
    if (!dst.is_device) {
        if (!is_past_fence()) {
            return UCS_ERR_NO_RESOURCE;
        }
        const ssize_t packed = call_pack(pack, dst.pointer(), arg);
        if (packed > 0) {
            counts_.add(mover::cpu, static_cast<size_t>(packed));
        }
        return packed;
    }

    /* How long it is, the callback says when there is a place for it. */
    operation *op;
    status = prepare_bcopy(dst, true, 0, op);
    if (status != UCS_OK) {
        return status;
    }
    const ssize_t packed = call_pack(pack, op->copy.chunk->data, arg);
    const auto length    = static_cast<size_t>(packed);
    status               = (packed >= 0) ? planner_.check(dst, length)
                                         : static_cast<ucs_status_t>(packed);
    if (status != UCS_OK) {
        operations_.put_back(*op);
        return status;
    }
    operations_.start(*op, &domain, operation_kind::copy, nullptr);
    begin_bcopy(*op, shim::dma_direction::host_to_device, length);
    return packed;
}

ucs_status_t transfer_engine::start_unpacked(flush_domain &domain,
                                             const side &src, size_t length,
                                             uct_unpack_callback_t unpack,
                                             void *arg,
                                             uct_completion_t *completion)
{
    ucs_status_t status = UCS_OK;
    const bool is_memcpy =
        reinterpret_cast<void *>(unpack) == reinterpret_cast<void *>(&memcpy);
    if (is_memcpy && memory_map::is_device(arg)) {
        return start(domain, arg, src, length, completion);
    }
    const bool from_host = !src.is_device;
    if ((from_host || (length == 0)) && !is_past_fence()) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (from_host || (length == 0)) {
        unpack(arg, src.pointer(), length);
        counts_.add(mover::cpu, length);
        return UCS_OK;
    }
    if (length > options_.chunk_bytes) {
        ucs_error("gaudi: get_bcopy of %zu bytes, at most %zu are possible",
                  length, options_.chunk_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    operation *op;
    status = prepare_bcopy(src, false, length, op);
    if (status != UCS_OK) {
        return status;
    }
    operations_.start(*op, &domain, operation_kind::unpack, completion);
    op->unpack     = unpack;
    op->unpack_arg = arg;
    begin_bcopy(*op, shim::dma_direction::device_to_host, length);
    return UCS_INPROGRESS;
}

ucs_status_t transfer_engine::flush(flush_domain *domain,
                                    uct_completion_t *completion)
{
    if (operations_.is_flushed(domain)) {
        return UCS_OK;
    }
    if (completion != nullptr) {
        const auto what = (domain != nullptr) ? operation_kind::flush_domain
                                              : operation_kind::flush_all;
        operation *op   = operations_.take();
        if (op == nullptr) {
            return UCS_ERR_NO_RESOURCE;
        }
        operations_.start(*op, domain, what, completion);
    }
    return UCS_INPROGRESS;
}

ucs_status_t transfer_engine::drain_fence()
{
    fence();
    while (!is_past_fence()) {
        dispatcher_.advance();
        sched_yield(); /* to the process whose card copies */
    }
    return operations_.ended_failure();
}

unsigned transfer_engine::progress()
{
    dispatcher_.advance();
    return operations_.complete_ended();
}

ucs_status_t transfer_engine::event_fd(int &fd_p)
{
    ucs_status_t status = UCS_OK;
    if (event_ == nullptr) {
        status = guarded([&] { return wakeup_event::create(event_); });
    }
    if (status == UCS_OK) {
        fd_p = event_->fd();
    }
    return status;
}

ucs_status_t transfer_engine::check_at(remote_memory &memory, remote_peer &peer,
                                       double timeout_s)
{
    channel *by;
    const ucs_time_t start = ucs_get_time();
    int error              = channels_.get(peer, by);
    bool again             = true;
    while ((error == 0) &&
           ((error = by->others()->confirm(memory, again)) == -EINPROGRESS)) {
        again = false;
        if (ucs_get_time() - start > ucs_time_from_sec(timeout_s)) {
            return UCS_ERR_TIMED_OUT;
        }
        dispatcher_.advance(); /* so that slots are free again */
        by->others()->wait_for_oldest(1000);
        error = 0;
    }
    return to_status(error);
}

ucs_status_t transfer_engine::arm()
{
    int fd;
    ucs_status_t status = event_fd(fd);
    if (status != UCS_OK) {
        return status;
    }
    /* Cleared before the cards are asked: what ends later signals again. */
    (void)event_->clear();
    dispatcher_.advance_all();
    if (operations_.any_ended()) {
        return UCS_ERR_BUSY;
    }
    return guarded(
        [&] { return dispatcher_.arm(*event_) ? UCS_OK : UCS_ERR_BUSY; });
}

} // namespace gaudi::base
