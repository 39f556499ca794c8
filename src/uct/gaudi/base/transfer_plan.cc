/* How a transfer engine finds out what to do: what the addresses are, which
 * card has them, whether the host side is mapped. */
#include "uct/gaudi/base/status.h"
#include "uct/gaudi/base/transfer.h"

#include <cstring>

namespace gaudi::base {

namespace {

char *as_pointer(const void *address)
{
    return static_cast<char *>(const_cast<void *>(address));
}

} // namespace

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

/* Copy from card to card: the source's card writes, else the target's card
 * reads, else through staging memory that both reach. Writes are faster over
 * PCIe. */
ucs_status_t transfer_engine::plan_between_cards(const memory_location &to,
                                                 const memory_location &from,
                                                 copy_cursor &cursor)
{
    channel *first;
    channel *second;
    ucs_status_t status = channel_to(*from.owner, first);
    if (status == UCS_OK) {
        status = channel_to(*to.owner, second);
    }
    if (status != UCS_OK) {
        return status;
    }
    uint64_t va;
    if ((to.backing != nullptr) && (to.backing->va_on(*from.owner, va) == 0)) {
        cursor.way       = first;
        cursor.direction = shim::dma_direction::device_to_host;
        cursor.dst       = va + (cursor.dst - to.backing->va);
        return UCS_OK;
    }
    if ((from.backing != nullptr) &&
        (from.backing->va_on(*to.owner, va) == 0)) {
        cursor.way       = second;
        cursor.direction = shim::dma_direction::host_to_device;
        cursor.src       = va + (cursor.src - from.backing->va);
        return UCS_OK;
    }
    const int ret = first->share_staging(*to.owner);
    if (ret != 0) {
        ucs_error("%s: cannot map the staging memory of %s: %s",
                  to.owner->name().c_str(), from.owner->name().c_str(),
                  std::strerror(-ret));
        return to_status(ret);
    }
    cursor.way       = first;
    cursor.direction = shim::dma_direction::device_to_host;
    cursor.staged    = true;
    cursor.onward    = second;
    cursor.target    = cursor.dst;
    return UCS_OK;
}

/* Find out how to get the bytes there. */
ucs_status_t transfer_engine::plan(void *dst, const void *src, size_t length,
                                   copy_cursor &cursor)
{
    auto &table = device_table::instance();
    memory_location to;
    memory_location from;

    if (table.find(dst, length, to) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p %s", length, dst,
                  table.why_not(dst, length));
        return UCS_ERR_INVALID_ADDR;
    }
    if (table.find(src, length, from) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p %s", length, src,
                  table.why_not(src, length));
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
    cursor.left = length;
    cursor.dst  = reinterpret_cast<uintptr_t>(dst);
    cursor.src  = reinterpret_cast<uintptr_t>(src);
    if (to_device && from_device && (to.owner != from.owner)) {
        return plan_between_cards(to, from, cursor);
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

    cursor.way = way;
    if (!from_device) {
        cursor.direction = shim::dma_direction::host_to_device;
        plan_host_side(as_pointer(src), from, cursor, cursor.src);
    } else if (!to_device) {
        cursor.direction = shim::dma_direction::device_to_host;
        plan_host_side(dst, to, cursor, cursor.dst);
    } else if (from.imported) {
        cursor.direction = shim::dma_direction::host_to_device;
    } else if (to.imported) {
        cursor.direction = shim::dma_direction::device_to_host;
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

} // namespace gaudi::base
