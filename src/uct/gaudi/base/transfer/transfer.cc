#include "uct/gaudi/base/transfer/transfer.h"

#include "uct/gaudi/base/ucx/status.h"
#include "util/host_copy.h"

#include <algorithm>
#include <new>

namespace gaudi::base {

namespace {

/* Polls before a synchronous copy sleeps in the driver, and for how long. */
constexpr unsigned idle_polls    = 256;
constexpr uint64_t idle_sleep_us = 1000;
/* A synchronous copy to or from the host as short as this always goes through
 * staging memory. */
constexpr size_t staged_bytes = 2048;
/* Limits of settings, so that a slip of the finger is told from a wish. */
constexpr size_t max_staging_bytes = size_t{1} << 30;
constexpr unsigned max_operations  = 1u << 20;
/* Records of operations that are made at a time. */
constexpr unsigned block_operations = 256;
/* How long an engine that goes away waits for jobs: longer than the driver lets
 * one run. */
constexpr uint64_t drain_timeout_us = 60'000'000;

} // namespace

transfer_engine::transfer_engine(const transfer_options &options)
    : options_(options)
{
    for (ucs_list_link_t *list :
         {&free_, &all_, &fenced_, &kernels_, &ended_}) {
        ucs_list_head_init(list);
    }
    operations_.reserve(options.max_ops / block_operations + 1);
    (void)has_operation();
}

ucs_status_t transfer_engine::create(const transfer_options &options,
                                     std::unique_ptr<transfer_engine> &engine_p)
{
    if ((options.chunks <= reserved_chunks) || (options.chunk_bytes == 0) ||
        (options.chunk_bytes > max_staging_bytes / options.chunks)) {
        ucs_error("gaudi: STAGING_COUNT=%u and STAGING_CHUNK=%zu: at least %zu "
                  "chunks are needed, and at most %zu bytes in all",
                  options.chunks, options.chunk_bytes, reserved_chunks + 1,
                  max_staging_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    if ((options.piece_bytes == 0) || (options.pieces == 0) ||
        (options.piece_bytes > UINT64_MAX / options.pieces)) {
        ucs_error("gaudi: PIECE_COUNT=%u and PIECE_SIZE=%zu: copies cannot be "
                  "made so",
                  options.pieces, options.piece_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    if ((options.max_ops == 0) || (options.max_ops > max_operations)) {
        ucs_error("gaudi: MAX_OPS=%u is not between 1 and %u", options.max_ops,
                  max_operations);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<transfer_engine> created(new transfer_engine(options));
    created->bounce_.reset(new char[options.chunk_bytes]);
    engine_p = std::move(created);
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
    created->home_      = &home;
    auto &registrations = device_table::instance().registrations();
    if (options.remember_host && registrations.join()) {
        created->registrations_.reset(&registrations);
    }
    created->channels_.resize(device_table::instance().cards().size());
    channel *way;
    status = created->channel_to(home, way);
    if (status == UCS_OK) {
        engine_p = std::move(created);
    }
    return status;
}

transfer_engine::~transfer_engine()
{
    if (is_inherited()) {
        for (auto &way : channels_) {
            (void)way.release();
        }
        (void)event_.release();
        (void)registrations_.release();
        return;
    }
    const auto cancel_all = [this](ucs_list_link_t &waiting) {
        operation *op;
        operation *next;
        ucs_list_for_each_safe(op, next, &waiting, in_queue)
        {
            op->work.status = UCS_ERR_CANCELED;
            end_if_done(*op);
        }
    };
    cancel_all(fenced_);
    cancel_all(kernels_);
    for (const auto &way : channels_) {
        if (way != nullptr) {
            for (dma_lane &lane : way->lanes()) {
                cancel_all(lane.waiting);
            }
        }
    }
    bool drained = true;
    for (const auto &way : channels_) {
        if (way == nullptr) {
            continue;
        }
        for (const auto &queue : way->queues()) {
            while ((queue->outstanding() > 0) &&
                   (queue->wait_all(drain_timeout_us) == 0)) {
                reap(*queue);
            }
            drained &= (queue->outstanding() == 0);
        }
    }
    while (onward_first_ != nullptr) {
        finish(take_onward(), UCS_ERR_CANCELED);
    }
    if (!drained) {
        /* A job may use the staging memory of another card. */
        for (const auto &way : channels_) {
            if (way != nullptr) {
                way->abandon_staging();
            }
        }
    }
    complete_ended();
}

ucs_status_t transfer_engine::check_owner() const
{
    if (is_inherited()) {
        ucs_error("gaudi: the cards belong to the process that this one was "
                  "forked from; UCX has to be opened anew");
        return UCS_ERR_UNSUPPORTED;
    }
    return UCS_OK;
}

ucs_status_t transfer_engine::check_has_card(const char *what) const
{
    if (home_ == nullptr) {
        ucs_error("gaudi: %s cannot be reached: this process has opened no "
                  "card",
                  what);
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

ucs_status_t transfer_engine::channel_to(card &owner, channel *&way)
{
    if (owner.slot() >= channels_.size()) {
        channels_.resize(owner.slot() + 1);
    }
    auto &entry = channels_[owner.slot()];
    if (entry == nullptr) {
        ucs_status_t status = guarded([&] {
            return channel::create(
                owner, options_.chunk_bytes, options_.chunks,
                uint64_t{options_.piece_bytes} * options_.pieces, entry);
        });
        if (status != UCS_OK) {
            return status;
        }
    }
    way = entry.get();
    return UCS_OK;
}

bool transfer_engine::has_operation()
{
    if (ucs_likely(!ucs_list_is_empty(&free_))) {
        return true;
    }
    const unsigned count = std::min(block_operations, options_.max_ops - made_);
    std::unique_ptr<operation[]> block(
        (count > 0) ? new (std::nothrow) operation[count] : nullptr);
    if (block == nullptr) {
        return false;
    }
    for (unsigned i = 0; i < count; ++i) {
        ucs_list_add_tail(&free_, &block[i].in_queue);
    }
    made_ += count;
    operations_.push_back(std::move(block));
    return true;
}

transfer_engine::operation *
transfer_engine::new_operation(flush_domain *domain, kind what,
                               uct_completion_t *completion)
{
    if (!has_operation()) {
        return nullptr;
    }
    operation *op         = ucs_list_extract_head(&free_, operation, in_queue);
    *op                   = {};
    op->work.is_operation = true;
    op->what              = what;
    op->sequence          = ++last_sequence_;
    op->after             = fence_;
    op->domain            = domain;
    op->completion        = completion;
    op->chunk             = -1;
    if (what != kind::flush_domain) {
        ucs_list_add_tail(&all_, &op->in_all);
    }
    if (what != kind::flush_all) {
        ucs_list_add_tail(&domain->operations, &op->in_domain);
    }
    return op;
}

/* Hand a planned operation to whoever moves the bytes, or completes it. */
void transfer_engine::begin(operation &op)
{
    if (op.cursor.left == 0) {
        end_if_done(op);
    } else if (!has_landed(op.after)) {
        ucs_list_add_tail(&fenced_, &op.in_queue);
    } else {
        enqueue(op);
    }
}

void transfer_engine::enqueue(operation &op)
{
    dma_lane *lane = op.cursor.lane;
    if (lane == nullptr) {
        ucs_list_add_tail(&kernels_, &op.in_queue);
        return;
    }
    const bool first = ucs_list_is_empty(&lane->waiting);
    ucs_list_add_tail(&lane->waiting, &op.in_queue);
    if (first) {
        while (submit_piece(*lane)) {}
    }
}

ucs_status_t transfer_engine::copy(const side &dst, const side &src,
                                   size_t length)
{
    if (length == 0) {
        return UCS_OK;
    }
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    while (!has_landed(fence_)) {
        reap_all();
        submit_onward();
        submit_all();
        copy_waiting();
    }

    if ((dst.remote == nullptr) && (src.remote == nullptr)) {
        const bool to_device   = device_table::is_device_address(dst.address);
        const bool from_device = device_table::is_device_address(src.address);
        if (!to_device && !from_device) {
            util::copy_host_bytes(dst.address, src.address, length);
            return UCS_OK;
        }
        if ((to_device != from_device) && (length <= staged_bytes) &&
            copy_short(to_device, to_device ? dst.address : src.address,
                       to_device ? src.address : dst.address, length, status)) {
            return status;
        }
    }
    return copy_planned(dst, src, length);
}

/* The copy of any two sides. */
ucs_status_t transfer_engine::copy_planned(const side &dst, const side &src,
                                           size_t length)
{
    transfer work;
    copy_cursor cursor;
    ucs_status_t status =
        plan(dst, src, length,
             (length > staged_bytes) ? host_side::find_registration
                                     : host_side::stage,
             cursor);
    if (status != UCS_OK) {
        return status;
    }
    if (cursor.way == nullptr) {
        copy_by_kernel(work, cursor, length);
    } else {
        finish_copy(work, cursor);
    }
    release(cursor);
    return work.status;
}

/* Submit the rest of a synchronous copy, and wait for all of it. */
void transfer_engine::finish_copy(transfer &work, copy_cursor &cursor)
{
    shim::dma_queue &queue = *cursor.lane->queue;
    shim::dma_queue *onward =
        (cursor.onward != nullptr) ? cursor.onward->queue : nullptr;
    unsigned idle = 0;
    while (((work.status == UCS_OK) && (cursor.left > 0)) ||
           (work.in_flight > 0)) {
        bool moved = false;
        while ((work.status == UCS_OK) && (cursor.left > 0) &&
               submit_next(work, cursor, 0)) {
            moved = true;
        }
        moved |= (reap(queue) > 0);
        if (onward != nullptr) {
            moved |= (submit_onward() > 0);
            moved |= (reap(*onward) > 0);
        }
        if (moved) {
            idle = 0;
            continue;
        }
        /* The room may be taken by jobs of other directions and cards. */
        reap_all();
        submit_onward();
        if (++idle > idle_polls) {
            (void)queue.wait_all(idle_sleep_us);
            if (onward != nullptr) {
                (void)onward->wait_all(idle_sleep_us);
            }
        }
    }
}

ucs_status_t transfer_engine::start(flush_domain &domain, const side &dst,
                                    const side &src, size_t length,
                                    uct_completion_t *completion)
{
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    if (!has_operation()) {
        return UCS_ERR_NO_RESOURCE;
    }
    copy_cursor cursor;
    if (length > 0) {
        status = plan(dst, src, length, host_side::find_registration, cursor);
        if (status != UCS_OK) {
            return status;
        }
        if ((cursor.way == nullptr) && (cursor.process == nullptr)) {
            if (!has_landed(fence_)) {
                return UCS_ERR_NO_RESOURCE;
            }
            util::copy_host_bytes(dst.address, src.address, length);
            cursor.left = 0;
        }
    }
    operation *op = new_operation(&domain, kind::copy, completion);
    op->cursor    = cursor;
    begin(*op);
    return UCS_INPROGRESS;
}

ucs_status_t transfer_engine::fail_later(flush_domain &domain, ucs_status_t why,
                                         uct_completion_t *completion)
{
    const ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    operation *op = new_operation(&domain, kind::copy, completion);
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    op->work.status = why;
    begin(*op);
    return UCS_INPROGRESS;
}

ssize_t transfer_engine::start_packed(flush_domain &domain, const side &dst,
                                      uct_pack_callback_t pack, void *arg)
{
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    const bool to_host = (dst.remote != nullptr)
                             ? (dst.remote->host() != nullptr)
                             : !device_table::is_device_address(dst.address);
    if (to_host && !has_landed(fence_)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (to_host && (dst.remote == nullptr)) {
        return static_cast<ssize_t>(pack(dst.address, arg));
    }
    if (to_host) {
        const size_t packed = pack(bounce_.get(), arg);
        status              = copy(dst, bounce_.get(), packed);
        return (status == UCS_OK) ? static_cast<ssize_t>(packed)
                                  : static_cast<ssize_t>(status);
    }

    /* How long it is, the callback says when there is a place for it. */
    copy_cursor cursor;
    status = plan_chunk(role::target, dst, 0, cursor);
    if (status != UCS_OK) {
        return status;
    }
    channel &way    = *cursor.way;
    const int chunk = has_operation() ? way.take_chunk(reserved_chunks) : -1;
    if (chunk < 0) {
        release(cursor);
        return UCS_ERR_NO_RESOURCE;
    }
    const size_t length = pack(way.chunk_data(chunk), arg);
    status              = check_packed(dst, length);
    if (status != UCS_OK) {
        way.give_chunk(chunk);
        release(cursor);
        return status;
    }
    operation *op   = new_operation(&domain, kind::copy, nullptr);
    op->chunk       = chunk;
    op->cursor      = cursor;
    op->cursor.src  = way.chunk_va(chunk);
    op->cursor.left = length;
    op->cursor.lane =
        &lane_of(way, shim::dma_direction::host_to_device, length);
    begin(*op);
    return static_cast<ssize_t>(length);
}

ucs_status_t transfer_engine::start_unpacked(flush_domain &domain,
                                             const side &src, size_t length,
                                             uct_unpack_callback_t unpack,
                                             void *arg,
                                             uct_completion_t *completion)
{
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    const bool is_memcpy =
        reinterpret_cast<void *>(unpack) == reinterpret_cast<void *>(&memcpy);
    if (is_memcpy && device_table::is_device_address(arg)) {
        return start(domain, arg, src, length, completion);
    }
    const bool from_host = (src.remote != nullptr)
                               ? (src.remote->host() != nullptr)
                               : !device_table::is_device_address(src.address);
    if ((from_host || (length == 0)) && !has_landed(fence_)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if ((from_host && (src.remote == nullptr)) || (length == 0)) {
        unpack(arg, src.address, length);
        return UCS_OK;
    }
    if (length > options_.chunk_bytes) {
        ucs_error("gaudi: get_bcopy of %zu bytes, at most %zu are possible",
                  length, options_.chunk_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    if (from_host) {
        status = copy(bounce_.get(), src, length);
        if (status == UCS_OK) {
            unpack(arg, bounce_.get(), length);
        }
        return status;
    }

    copy_cursor cursor;
    status = plan_chunk(role::source, src, length, cursor);
    if (status != UCS_OK) {
        return status;
    }
    channel &way    = *cursor.way;
    const int chunk = has_operation() ? way.take_chunk(reserved_chunks) : -1;
    if (chunk < 0) {
        release(cursor);
        return UCS_ERR_NO_RESOURCE;
    }
    operation *op   = new_operation(&domain, kind::unpack, completion);
    op->chunk       = chunk;
    op->unpack      = unpack;
    op->unpack_arg  = arg;
    op->length      = length;
    op->cursor      = cursor;
    op->cursor.dst  = way.chunk_va(chunk);
    op->cursor.left = length;
    op->cursor.lane =
        &lane_of(way, shim::dma_direction::device_to_host, length);
    begin(*op);
    return UCS_INPROGRESS;
}

ucs_status_t transfer_engine::flush(flush_domain *domain,
                                    uct_completion_t *completion)
{
    if (is_inherited() ||
        ucs_list_is_empty((domain != nullptr) ? &domain->operations : &all_)) {
        return UCS_OK;
    }
    if (completion != nullptr) {
        const kind what =
            (domain != nullptr) ? kind::flush_domain : kind::flush_all;
        if (new_operation(domain, what, completion) == nullptr) {
            return UCS_ERR_NO_RESOURCE;
        }
    }
    return UCS_INPROGRESS;
}

void transfer_engine::fence()
{
    fence_ = last_sequence_;
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

ucs_status_t transfer_engine::arm()
{
    if (is_inherited()) {
        return UCS_OK;
    }
    int fd;
    ucs_status_t status = event_fd(fd);
    if (status != UCS_OK) {
        return status;
    }
    /* Cleared before the look around: what ends later signals again. */
    (void)event_->clear();
    while (reap_all() > 0) {}
    submit_onward();
    submit_all();
    if (!ucs_list_is_empty(&ended_) || !ucs_list_is_empty(&kernels_)) {
        return UCS_ERR_BUSY;
    }
    return guarded([&] { return watch_jobs() ? UCS_OK : UCS_ERR_BUSY; });
}

void transfer_engine::cancel(flush_domain &domain, ucs_status_t status)
{
    if (is_inherited()) {
        return;
    }
    operation *op;
    ucs_list_for_each(op, &domain.operations, in_domain)
    {
        if (!op->has_ended && (op->what != kind::flush_domain)) {
            op->work.status = status;
            end_if_done(*op);
        }
    }
}

void transfer_engine::open(flush_domain &domain)
{
    ucs_list_head_init(&domain.operations);
}

void transfer_engine::close(flush_domain &domain)
{
    if (is_inherited()) {
        return;
    }
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &domain.operations, in_domain)
    {
        ucs_list_del(&op->in_domain);
        op->domain = nullptr;
        if (op->what == kind::flush_domain) {
            op->work.status = UCS_ERR_CANCELED;
            end(*op);
        }
    }
}

} // namespace gaudi::base
