#include "uct/gaudi/base/transfer.h"

#include "uct/gaudi/base/status.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

namespace {

/* Staging chunks that only synchronous copies may take, so that they always get
 * on: two, to fill one while the other is on its way. */
constexpr size_t reserved_chunks = 2;
/* Completions collected at a time. */
constexpr unsigned poll_batch = 16;
/* Polls before a synchronous copy sleeps in the driver, and for how long. */
constexpr unsigned idle_polls    = 256;
constexpr uint64_t idle_sleep_us = 1000;

char *as_pointer(const void *address)
{
    return static_cast<char *>(const_cast<void *>(address));
}

void copy_host_bytes(void *dst, const void *src, size_t length)
{
    std::memmove(dst, src, length);
}

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
        (options.max_ops == 0)) {
        ucs_error("gaudi: a transport needs at least %zu staging chunks, not "
                  "empty, and one operation",
                  reserved_chunks + 1);
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
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &waiting_, in_queue)
    {
        op->work.status = UCS_ERR_CANCELED;
        end_if_done(*op);
    }
    for (const auto &way : channels_) {
        for (size_t i = 0; (way != nullptr) && (i < channel::directions); ++i) {
            const auto direction   = static_cast<shim::dma_direction>(i);
            shim::dma_queue &queue = way->queue(direction);
            while ((queue.outstanding() > 0) &&
                   (queue.wait_all(idle_sleep_us * 1000 * 60) == 0)) {
                reap(*way, direction);
            }
        }
    }
    complete_ended();
}

ucs_status_t transfer_engine::channel_to(card &owner, channel *&way)
{
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

/* --- planning ------------------------------------------------------------- */

/* Reach host memory: where it is mapped already, else through staging. */
void transfer_engine::plan_host_side(void *host, const memory_location &where,
                                     copy_cursor &cursor, uint64_t &va)
{
    if (where.mapped != nullptr) {
        uint64_t start;
        if (where.mapped->va_on(cursor.way->owner(), start) == 0) {
            va = start +
                 (reinterpret_cast<uintptr_t>(host) - where.mapped->start);
            cursor.held = where.mapped;
            return;
        }
        where.mapped->put();
    }
    cursor.staged = true;
    cursor.host   = static_cast<char *>(host);
}

/* Find out how to get the bytes there. */
ucs_status_t transfer_engine::plan(void *dst, const void *src, size_t length,
                                   copy_cursor &cursor)
{
    auto &table = device_table::instance();
    memory_location to;
    memory_location from;

    if (table.find(dst, length, to) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p are in no allocation of device "
                  "memory",
                  length, dst);
        return UCS_ERR_INVALID_ADDR;
    }
    if (table.find(src, length, from) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p are in no allocation of device "
                  "memory",
                  length, src);
        if (to.mapped != nullptr) {
            to.mapped->put();
        }
        return UCS_ERR_INVALID_ADDR;
    }

    const bool to_device   = (to.kind == memory_kind::device);
    const bool from_device = (from.kind == memory_kind::device);
    if (!to_device && !from_device) {
        for (host_memory *mapped : {to.mapped, from.mapped}) {
            if (mapped != nullptr) {
                mapped->put();
            }
        }
        return UCS_OK;
    }
    if (to_device && from_device && (to.owner != from.owner)) {
        ucs_error("gaudi: a copy between two cards (%s, %s) is not supported",
                  from.owner->name().c_str(), to.owner->name().c_str());
        return UCS_ERR_UNSUPPORTED;
    }

    channel *way;
    ucs_status_t status = channel_to(to_device ? *to.owner : *from.owner, way);
    if (status != UCS_OK) {
        for (host_memory *mapped : {to.mapped, from.mapped}) {
            if (mapped != nullptr) {
                mapped->put();
            }
        }
        return status;
    }

    cursor.way  = way;
    cursor.left = length;
    cursor.dst  = reinterpret_cast<uintptr_t>(dst);
    cursor.src  = reinterpret_cast<uintptr_t>(src);
    if (!from_device) {
        cursor.direction = shim::dma_direction::host_to_device;
        plan_host_side(as_pointer(src), from, cursor, cursor.src);
    } else if (!to_device) {
        cursor.direction = shim::dma_direction::device_to_host;
        plan_host_side(dst, to, cursor, cursor.dst);
    } else {
        cursor.direction = shim::dma_direction::device_to_device;
    }
    return UCS_OK;
}

void transfer_engine::release(copy_cursor &cursor)
{
    if (cursor.filled >= 0) {
        cursor.way->give_chunk(cursor.filled);
    }
    if (cursor.held != nullptr) {
        cursor.held->put();
    }
    cursor = {};
}

/* --- submission ----------------------------------------------------------- */

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

    *job = {&owner, chunk, (cursor.staged && !upload) ? cursor.host : nullptr,
            length};
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
    cursor.host += cursor.staged ? length : 0;
    cursor.left -= length;
    return true;
}

bool transfer_engine::has_completed(uint64_t sequence)
{
    return ucs_list_is_empty(&all_) ||
           (ucs_list_head(&all_, operation, in_all)->sequence > sequence);
}

void transfer_engine::submit_queued()
{
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &waiting_, in_queue)
    {
        if (!has_completed(op->after)) {
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

/* --- completion ----------------------------------------------------------- */

unsigned transfer_engine::reap(channel &way, shim::dma_direction direction)
{
    shim::dma_completion ended[poll_batch];
    const unsigned count = way.queue(direction).poll(ended, poll_batch);

    for (unsigned i = 0; i < count; ++i) {
        auto *job       = static_cast<segment *>(ended[i].cookie);
        transfer &owner = *job->owner;

        if (ended[i].status != 0) {
            ucs_error("%s: a DMA copy of %zu bytes failed: %s",
                      way.owner().name().c_str(), job->length,
                      std::strerror(-ended[i].status));
            owner.status = to_status(ended[i].status);
        } else if (job->host != nullptr) {
            copy_host_bytes(job->host, way.chunk_data(job->chunk), job->length);
        }
        if (job->chunk >= 0) {
            way.give_chunk(job->chunk);
        }
        way.give_segment(job);
        --owner.in_flight;
        if (owner.is_operation) {
            end_if_done(reinterpret_cast<operation &>(owner));
        }
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
    reap_all();
    submit_queued();
    return complete_ended();
}

bool transfer_engine::has_resources()
{
    return !ucs_list_is_empty(&free_) && has_completed(fence_) &&
           std::all_of(channels_.begin(), channels_.end(), [](const auto &way) {
               return (way == nullptr) ||
                      (way->free_chunks() > reserved_chunks);
           });
}

/* --- operations ----------------------------------------------------------- */

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
    if (!has_completed(fence_)) {
        return UCS_ERR_NO_RESOURCE;
    }

    copy_cursor cursor;
    ucs_status_t status = plan(dst, src, length, cursor);
    if (status != UCS_OK) {
        return status;
    }
    if (cursor.way == nullptr) {
        copy_host_bytes(dst, src, length);
        return UCS_OK;
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
        if (moved) {
            idle = 0;
            continue;
        }
        /* The room may be taken by jobs of other directions. */
        if (work.in_flight == 0) {
            reap_all();
        }
        if (++idle > idle_polls) {
            (void)cursor.way->queue(cursor.direction).wait_all(idle_sleep_us);
        }
    }
    release(cursor);
    return work.status;
}

ucs_status_t transfer_engine::start(flush_domain &domain, void *dst,
                                    const void *src, size_t length,
                                    uct_completion_t *completion)
{
    if (ucs_list_is_empty(&free_)) {
        return UCS_ERR_NO_RESOURCE;
    }
    copy_cursor cursor;
    if (length > 0) {
        ucs_status_t status = plan(dst, src, length, cursor);
        if (status != UCS_OK) {
            return status;
        }
        if (cursor.way == nullptr) {
            if (!has_completed(fence_)) {
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
    auto &table = device_table::instance();
    if (!device_table::is_device_address(dst)) {
        return has_completed(fence_)
                   ? static_cast<ssize_t>(pack(dst, arg))
                   : static_cast<ssize_t>(UCS_ERR_NO_RESOURCE);
    }

    uint64_t base;
    size_t allocated;
    card *owner;
    if (!table.query(dst, 1, base, allocated, owner)) {
        ucs_error("gaudi: %p is in no allocation of device memory", dst);
        return UCS_ERR_INVALID_ADDR;
    }
    channel *way;
    ucs_status_t status = channel_to(*owner, way);
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
    if (device_table::is_device_address(arg)) {
        return start(domain, arg, src, length, completion);
    }
    if (!device_table::is_device_address(src) || (length == 0)) {
        if (!has_completed(fence_)) {
            return UCS_ERR_NO_RESOURCE;
        }
        unpack(arg, src, length);
        return UCS_OK;
    }

    memory_location from;
    if (device_table::instance().find(src, length, from) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p are in no allocation of device "
                  "memory",
                  length, src);
        return UCS_ERR_INVALID_ADDR;
    }
    channel *way;
    ucs_status_t status = channel_to(*from.owner, way);
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
    if (ucs_list_is_empty((domain != nullptr) ? &domain->operations : &all_)) {
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

void transfer_engine::open(flush_domain &domain)
{
    ucs_list_head_init(&domain.operations);
}

void transfer_engine::close(flush_domain &domain)
{
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
