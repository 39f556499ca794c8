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
/* How long a short operation waits for another process, seconds; and how often
 * that is doubled. */
constexpr double short_wait_s    = 0.05;
constexpr unsigned most_doubling = 4;
/* Polls that find nothing before a caller sleeps. */
constexpr unsigned idle_polls = 256;

/* Where an operation waits for its turn: with others that need chunks of the
 * same process, so that it is in nobody else's way. */
work_queue &line_of(const operation &op)
{
    return ((op.how == way::relay) && (op.queue->home != op.through))
               ? *op.relay
               : *op.queue;
}

} // namespace

transfer_engine::transfer_engine(const transfer_options &options)
    : options_(options), planner_(lanes_, options), lanes_(options_),
      operations_(options.max_ops, counts_)
{
    ucs_queue_head_init(&onward_);
}

ucs_status_t transfer_engine::create(const transfer_options &options,
                                     std::unique_ptr<transfer_engine> &engine_p)
{
    constexpr size_t least_chunks = planner::reserved_chunks + 1;
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
    lane *made;
    status = created->lanes_.get(home, made);
    if (status == UCS_OK) {
        engine_p = std::move(created);
    }
    return status;
}

transfer_engine::~transfer_engine()
{
    for (const auto &each : lanes_) {
        for (size_t i = 0; i < lane::queue_count; ++i) {
            operations_.cancel(each->queue_in_turn(i).waiting);
        }
    }
    const bool drained = drain();
    if (!drained) {
        /* A job may use the staging memory of another card. */
        for (const auto &each : lanes_) {
            each->abandon_staging();
        }
    }
    operations_.complete_ended();
    if (!drained) {
        operations_.disown();
    }
}

/* --- starting -------------------------------------------------------------*/

/* Take a record, and plan a copy. On an error nothing is held. */
ucs_status_t transfer_engine::take_planned(const side &dst, const side &src,
                                           size_t length, host_side host,
                                           operation *&op_p)
{
    operation *op = take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    const ucs_status_t status =
        guarded([&] { return planner_.plan(dst, src, length, host, *op); });
    if (status == UCS_OK) {
        op_p = op;
    } else {
        operations_.put_back(*op);
    }
    return status;
}

static void log_path(const operation &op)
{
    ucs_info("gaudi: a copy of %zu bytes goes over %s, %s", op.total,
             (op.moved_by == mover::ports) ? "ports" : "host memory",
             (op.how == way::direct) ? "not staged" : "staged");
}

/* Have the bytes of an operation moved that was started. */
void transfer_engine::begin(operation &op)
{
    if (ucs_unlikely(options_.logs_paths) && (op.remote != nullptr)) {
        log_path(op);
    }
    if (op.left == 0) {
        operations_.end_if_done(op);
        return;
    }
    work_queue &line = line_of(op);
    const bool is_first =
        (op.what == operation_kind::call) || ucs_list_is_empty(&line.waiting);
    if (is_first) { /* somebody waits for a call */
        ucs_list_add_head(&line.waiting, &op.in_queue);
        submit_waiting(line);
    } else {
        ucs_list_add_tail(&line.waiting, &op.in_queue);
    }
}

/* Copy a few bytes between host memory and device memory, through a chunk, if
 * nothing that the card has to do first is in the way.
 * @return Whether it has ended; then the status is UCS_OK, or an error, which
 * was logged. */
bool transfer_engine::copy_at_once(lane &by, bool to_card, uint64_t va,
                                   void *host, size_t length,
                                   ucs_status_t &status_p)
{
    work_queue &queue =
        by.queue_for(to_card ? shim::dma_direction::host_to_device
                             : shim::dma_direction::device_to_host,
                     length);
    if ((queue.dma->outstanding() > 0) || (length > by.chunk_bytes())) {
        return false;
    }
    const chunk_ptr chunk = by.take_chunk(0, nullptr);
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
            by.sleep(queue);
        }
    }
    status_p = queue.judge_end(length, ended.status);
    if (status_p == UCS_OK) {
        if (!to_card) {
            std::memmove(host, chunk->data, length);
        }
        counts_.add(mover::card, length);
    }
    return true;
}

ucs_status_t transfer_engine::copy(const side &dst, const side &src,
                                   size_t length)
{
    if (length == 0) {
        return UCS_OK;
    }
    if (ucs_unlikely(!is_past_fence())) {
        wait_for_fence();
    }
    if (dst.is_plain() && src.is_plain()) {
        /* The CPU copies host memory to host memory, and nothing else. */
        std::memmove(dst.pointer(), src.pointer(), length);
        counts_.add(mover::cpu, length);
        return UCS_OK;
    }
    ucs_status_t status = UCS_OK;
    const bool to_card  = src.is_plain();
    const side &device  = to_card ? dst : src;
    if ((length <= staged_bytes) && (to_card || dst.is_plain()) &&
        (device.remote == nullptr)) {
        device_location where;
        lane *by;
        status = planner_.find_device(device, length, where, by);
        if ((status != UCS_OK) ||
            copy_at_once(*by, to_card, device.address,
                         (to_card ? src : dst).pointer(), length, status)) {
            return status;
        }
    }
    operation &op = operations_.take_call();
    status        = guarded([&] {
        return planner_.plan(dst, src, length,
                             (length > staged_bytes)
                                        ? host_side::find_registration
                                        : host_side::stage,
                                    op);
    });
    if (status != UCS_OK) {
        operations_.put_back(op);
        return status;
    }
    operations_.start(op, nullptr, operation_kind::call, nullptr);
    begin(op);
    for (unsigned idle = 0; !op.has_ended;) {
        idle = advance() ? 0 : idle + 1;
        if (idle > idle_polls) {
            op.queue->home->sleep(*op.queue);
            if (op.how == way::relay) {
                op.relay->home->sleep(*op.relay);
            }
        }
    }
    return operations_.take_ended(op);
}

/* Of a copy from or to memory of another process. From host memory, or to it,
 * at most a chunk. One whose later pieces find no chunk begins anew. */
ucs_status_t transfer_engine::copy_piece(flush_domain &domain, const side &dst,
                                         const side &src, size_t length,
                                         bool is_first)
{
    const bool is_put     = (dst.remote != nullptr);
    const side &here      = is_put ? src : dst;
    const bool goes_alone = is_put && here.is_plain();
    if (!goes_alone && (domain.late > 0)) {
        return UCS_ERR_NO_RESOURCE;
    }
    const unsigned doubled = std::min(domain.slow, most_doubling);
    const double wait_s =
        (is_first && domain.has_waited) ? 0 : short_wait_s * (1U << doubled);
    const ucs_time_t end = ucs_get_time() + ucs_time_from_sec(wait_s);
    unsigned idle        = 0;
    /* false: it has lasted long enough. */
    const auto poll = [&](bool is_slow) {
        idle = advance() ? 0 : idle + 1;
        if (idle > idle_polls) {
            util::nap();
        }
        return !is_slow && (ucs_get_time() < end);
    };
    operation *op;
    ucs_status_t status;
    do {
        status = take_planned(
            dst, src, length,
            here.is_plain() ? host_side::chunk : host_side::stage, op);
    } while ((status == UCS_ERR_NO_RESOURCE) &&
             poll(is_first && (domain.late > 0)));
    domain.has_waited = (status == UCS_ERR_NO_RESOURCE);
    if (status != UCS_OK) {
        domain.slow += is_first ? 0 : 1;
        return status;
    }
    auto what = operation_kind::copy;
    if (goes_alone) {
        std::memcpy(op->chunk->data, here.pointer(), length);
    } else if (here.is_plain()) {
        what           = operation_kind::unpack;
        op->unpack_arg = here.pointer();
        op->unpack     = [](void *to, const void *data, size_t bytes) {
            std::memcpy(to, data, bytes);
        };
    }
    operations_.start(*op, &domain, what, nullptr);
    begin(*op);
    while (!op->has_ended && poll(domain.late > 0)) {}
    if (op->has_ended) {
        return operations_.take_ended(*op);
    }
    operations::leave(*op, !goes_alone);
    return goes_alone ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

ucs_status_t transfer_engine::copy_short(flush_domain &domain, const side &dst,
                                         const side &src, size_t length)
{
    if ((dst.remote == nullptr) && (src.remote == nullptr)) {
        return copy(dst, src, length);
    }
    const size_t most =
        (dst.is_plain() || src.is_plain()) ? options_.chunk_bytes : length;
    side to             = dst;
    side from           = src;
    ucs_status_t status = UCS_OK;
    for (size_t done = 0; (status == UCS_OK) && (done < length); done += most) {
        to.address   = dst.address + done;
        from.address = src.address + done;
        status = copy_piece(domain, to, from, std::min(most, length - done),
                            done == 0);
    }
    if ((status == UCS_OK) && (domain.late == 0)) {
        domain.slow = 0;
    }
    return status;
}

ucs_status_t transfer_engine::start(flush_domain &domain, const side &dst,
                                    const side &src, size_t length,
                                    uct_completion_t *completion)
{
    operation *op;
    if ((length > 0) && (!dst.is_plain() || !src.is_plain())) {
        const ucs_status_t status =
            take_planned(dst, src, length, host_side::find_registration, op);
        if (status != UCS_OK) {
            return status;
        }
    } else {
        op = take();
        if (op == nullptr) {
            return UCS_ERR_NO_RESOURCE;
        }
        if (length > 0) {
            std::memmove(dst.pointer(), src.pointer(), length);
        }
        op->total    = length;
        op->moved_by = mover::cpu;
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
    op->status = why;
    begin(*op);
    return UCS_INPROGRESS;
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
    status = take_planned(dst, side(uint64_t{0}), 0, host_side::chunk, op);
    if (status != UCS_OK) {
        return status;
    }
    const ssize_t packed = call_pack(pack, op->chunk->data, arg);
    const auto length    = static_cast<size_t>(packed);
    status               = (packed >= 0) ? planner_.check(dst, length)
                                         : static_cast<ucs_status_t>(packed);
    if (status != UCS_OK) {
        operations_.put_back(*op);
        return status;
    }
    operations_.start(*op, &domain, operation_kind::copy, nullptr);
    op->total = op->left = length;
    begin(*op);
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
    if (!src.is_device || (length == 0)) {
        if (!is_past_fence()) {
            return UCS_ERR_NO_RESOURCE;
        }
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
    status = take_planned(side(uint64_t{0}), src, length, host_side::chunk, op);
    if (status != UCS_OK) {
        return status;
    }
    operations_.start(*op, &domain, operation_kind::unpack, completion);
    op->unpack     = unpack;
    op->unpack_arg = arg;
    begin(*op);
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

/* What has ended keeps its chunk until it is completed, which is not done here:
 * what has not gets the chunks that are kept for calls, too. */
void transfer_engine::wait_for_fence()
{
    waits_for_fence_ = true;
    while (!is_past_fence()) {
        advance();
        sched_yield(); /* to the process whose card copies */
    }
    waits_for_fence_ = false;
}

ucs_status_t transfer_engine::drain_fence()
{
    fence();
    wait_for_fence();
    return operations_.ended_failure();
}

unsigned transfer_engine::progress()
{
    advance();
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
    owner_lane *by;
    const ucs_time_t start = ucs_get_time();
    int error              = lanes_.get(peer, by);
    bool again             = true;
    while ((error == 0) &&
           ((error = by->confirm(memory, again)) == -EINPROGRESS)) {
        again = false;
        if (ucs_get_time() - start > ucs_time_from_sec(timeout_s)) {
            return UCS_ERR_TIMED_OUT;
        }
        advance(); /* so that slots are free again */
        util::nap();
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
    (void)advance();
    if (operations_.any_ended()) {
        return UCS_ERR_BUSY;
    }
    return guarded([&] { return arm_lanes() ? UCS_OK : UCS_ERR_BUSY; });
}

/* --- ports that another process asks for ----------------------------------*/

int transfer_engine::connect_ports(pci_address address, shim::port_offer &offer,
                                   port_lane *&ports_p)
{
    card *const from = planner_.find_card(address);
    const int error  = (from != nullptr)
                           ? lanes_.accept_ports(*from, offer, ports_p)
                           : -ENODEV;
    if (error == 0) {
        ++ports_p->users;
    }
    return error;
}

ucs_status_t transfer_engine::start_over_ports(flush_domain &domain,
                                               port_lane &ports,
                                               uint64_t target, uint64_t source,
                                               size_t length,
                                               uct_completion_t *completion)
{
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    device_location where;
    lane *by;
    ucs_status_t status =
        planner_.hold_device(side(source), length, where, by, op->device[0]);
    if ((status == UCS_OK) &&
        ((where.owner != ports.owner()) || where.imported)) {
        status = UCS_ERR_INVALID_ADDR;
    }
    if (status != UCS_OK) {
        operations_.put_back(*op);
        return status;
    }
    ++ports.users;
    op->by.reset(&ports);
    op->total = op->left = length;
    op->moved_by         = mover::ports;
    op->go(way::direct,
           ports.queue_for(shim::dma_direction::device_to_host, length), target,
           source);
    operations_.start(*op, &domain, operation_kind::copy, completion);
    begin(*op);
    return UCS_INPROGRESS;
}

} // namespace gaudi::base
