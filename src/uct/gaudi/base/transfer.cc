#include "uct/gaudi/base/transfer.h"

#include "uct/gaudi/base/host_copy.h"
#include "uct/gaudi/base/status.h"

namespace gaudi::base {

namespace {

/* Polls before a synchronous copy sleeps in the driver, and for how long. */
constexpr unsigned idle_polls    = 256;
constexpr uint64_t idle_sleep_us = 1000;
/* Limits of settings, so that a slip of the finger is told from a wish. */
constexpr size_t max_staging_bytes = size_t{1} << 30;
constexpr unsigned max_operations  = 1u << 20;
/* How long an engine that goes away waits for jobs: longer than the driver lets
 * one run. */
constexpr uint64_t drain_timeout_us = 60'000'000;

} // namespace

transfer_engine::transfer_engine(const transfer_options &options)
    : options_(options), operations_(options.max_ops)
{
    for (ucs_list_link_t *list : {&free_, &all_, &waiting_, &ended_}) {
        ucs_list_head_init(list);
    }
    for (operation &op : operations_) {
        ucs_list_add_tail(&free_, &op.in_queue);
    }
}

ucs_status_t transfer_engine::create(card &home,
                                     const transfer_options &options,
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
    if ((options.max_ops == 0) || (options.max_ops > max_operations)) {
        ucs_error("gaudi: MAX_OPS=%u is not between 1 and %u", options.max_ops,
                  max_operations);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<transfer_engine> created(new transfer_engine(options));
    created->channels_.resize(device_table::instance().cards().size());
    channel *way;
    ucs_status_t status = created->channel_to(home, way);
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
        return;
    }
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &waiting_, in_queue)
    {
        op->work.status = UCS_ERR_CANCELED;
        end_if_done(*op);
    }
    bool drained = true;
    for (const auto &way : channels_) {
        for (size_t i = 0; (way != nullptr) && (i < channel::directions); ++i) {
            const auto direction   = static_cast<shim::dma_direction>(i);
            shim::dma_queue &queue = way->queue(direction);
            while ((queue.outstanding() > 0) &&
                   (queue.wait_all(drain_timeout_us) == 0)) {
                reap(*way, direction);
            }
            drained &= (queue.outstanding() == 0);
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

ucs_status_t transfer_engine::channel_to(card &owner, channel *&way)
{
    if (owner.slot() >= channels_.size()) {
        channels_.resize(owner.slot() + 1);
    }
    auto &entry = channels_[owner.slot()];
    if (entry == nullptr) {
        ucs_status_t status = guarded([&] {
            return channel::create(owner, options_.chunk_bytes, options_.chunks,
                                   shim::dma_queue_options().depth, entry);
        });
        if (status != UCS_OK) {
            return status;
        }
    }
    way = entry.get();
    return UCS_OK;
}

transfer_engine::operation *
transfer_engine::new_operation(flush_domain *domain, kind what,
                               uct_completion_t *completion)
{
    if (ucs_list_is_empty(&free_)) {
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

/* Hand a planned operation to the card, or to whoever completes it. */
void transfer_engine::begin(operation &op)
{
    if (op.cursor.left == 0) {
        end_if_done(op);
        return;
    }
    const bool first = ucs_list_is_empty(&waiting_);
    ucs_list_add_tail(&waiting_, &op.in_queue);
    if (first) {
        submit_queued();
    }
}

ucs_status_t transfer_engine::copy(void *dst, const void *src, size_t length)
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
        submit_queued();
    }

    if (!device_table::is_device_address(dst) &&
        !device_table::is_device_address(src)) {
        copy_host_bytes(dst, src, length);
        return UCS_OK;
    }

    copy_cursor cursor;
    status = plan(dst, src, length, cursor);
    if (status != UCS_OK) {
        return status;
    }

    transfer work;
    unsigned idle = 0;
    while (((work.status == UCS_OK) && (cursor.left > 0)) ||
           (work.in_flight > 0)) {
        bool moved = false;
        while ((work.status == UCS_OK) && (cursor.left > 0) &&
               submit_next(work, cursor, 0)) {
            moved = true;
        }
        moved |= (reap(*cursor.way, cursor.direction) > 0);
        if (cursor.onward != nullptr) {
            moved |= (submit_onward() > 0);
            moved |=
                (reap(*cursor.onward, shim::dma_direction::host_to_device) > 0);
        }
        if (moved) {
            idle = 0;
            continue;
        }
        /* The room may be taken by jobs of other directions and cards. */
        reap_all();
        submit_onward();
        if (++idle > idle_polls) {
            (void)cursor.way->queue(cursor.direction).wait_all(idle_sleep_us);
            if (cursor.onward != nullptr) {
                (void)cursor.onward->queue(shim::dma_direction::host_to_device)
                    .wait_all(idle_sleep_us);
            }
        }
    }
    release(cursor);
    return work.status;
}

ucs_status_t transfer_engine::start(flush_domain &domain, void *dst,
                                    const void *src, size_t length,
                                    uct_completion_t *completion)
{
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    if (ucs_list_is_empty(&free_)) {
        return UCS_ERR_NO_RESOURCE;
    }
    copy_cursor cursor;
    if (length > 0) {
        status = plan(dst, src, length, cursor);
        if (status != UCS_OK) {
            return status;
        }
        if (cursor.way == nullptr) {
            if (!has_landed(fence_)) {
                return UCS_ERR_NO_RESOURCE;
            }
            copy_host_bytes(dst, src, length);
        }
    }
    operation *op = new_operation(&domain, kind::copy, completion);
    op->cursor    = cursor;
    begin(*op);
    return UCS_INPROGRESS;
}

ssize_t transfer_engine::start_packed(flush_domain &domain, void *dst,
                                      uct_pack_callback_t pack, void *arg)
{
    ucs_status_t status = check_owner();
    if (status != UCS_OK) {
        return status;
    }
    auto &table = device_table::instance();
    if (!device_table::is_device_address(dst)) {
        return has_landed(fence_) ? static_cast<ssize_t>(pack(dst, arg))
                                  : static_cast<ssize_t>(UCS_ERR_NO_RESOURCE);
    }

    uint64_t base;
    size_t allocated;
    card *owner;
    if (!table.query(dst, 0, base, allocated, owner)) {
        ucs_error("gaudi: %p is in no allocation of device memory", dst);
        return UCS_ERR_INVALID_ADDR;
    }
    channel *way;
    status = channel_to(*owner, way);
    if (status != UCS_OK) {
        return status;
    }
    const int chunk =
        ucs_list_is_empty(&free_) ? -1 : way->take_chunk(reserved_chunks);
    if (chunk < 0) {
        return UCS_ERR_NO_RESOURCE;
    }

    const size_t length = pack(way->chunk_data(chunk), arg);
    if (length > base + allocated - reinterpret_cast<uintptr_t>(dst)) {
        ucs_error("gaudi: %zu bytes at %p are in no allocation of device "
                  "memory",
                  length, dst);
        way->give_chunk(chunk);
        return UCS_ERR_INVALID_ADDR;
    }
    operation *op        = new_operation(&domain, kind::copy, nullptr);
    op->chunk            = chunk;
    op->cursor.way       = way;
    op->cursor.direction = shim::dma_direction::host_to_device;
    op->cursor.dst       = reinterpret_cast<uintptr_t>(dst);
    op->cursor.src       = way->chunk_va(chunk);
    op->cursor.left      = length;
    begin(*op);
    return static_cast<ssize_t>(length);
}

ucs_status_t transfer_engine::start_unpacked(flush_domain &domain,
                                             const void *src, size_t length,
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
    if (!device_table::is_device_address(src) || (length == 0)) {
        if (!has_landed(fence_)) {
            return UCS_ERR_NO_RESOURCE;
        }
        unpack(arg, src, length);
        return UCS_OK;
    }

    memory_location from;
    if (device_table::instance().find(src, length, from) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p %s", length, src,
                  device_table::instance().why_not(src, length));
        return UCS_ERR_INVALID_ADDR;
    }
    channel *way;
    status = channel_to(*from.owner, way);
    if (status != UCS_OK) {
        return status;
    }
    if (length > way->chunk_bytes()) {
        ucs_error("gaudi: get_bcopy of %zu bytes, at most %zu are possible",
                  length, way->chunk_bytes());
        return UCS_ERR_INVALID_PARAM;
    }
    const int chunk =
        ucs_list_is_empty(&free_) ? -1 : way->take_chunk(reserved_chunks);
    if (chunk < 0) {
        return UCS_ERR_NO_RESOURCE;
    }
    operation *op        = new_operation(&domain, kind::unpack, completion);
    op->chunk            = chunk;
    op->unpack           = unpack;
    op->unpack_arg       = arg;
    op->length           = length;
    op->cursor.way       = way;
    op->cursor.direction = shim::dma_direction::device_to_host;
    op->cursor.dst       = way->chunk_va(chunk);
    op->cursor.src       = reinterpret_cast<uintptr_t>(src);
    op->cursor.left      = length;
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
    submit_queued();
    if (!ucs_list_is_empty(&ended_)) {
        return UCS_ERR_BUSY;
    }
    return guarded([&] { return watch_jobs() ? UCS_OK : UCS_ERR_BUSY; });
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
