/* How a transfer engine finds out what to do: what the addresses are, which
 * card has them, whether the host side is mapped. */
#include "uct/gaudi/base/transfer/transfer.h"
#include "uct/gaudi/base/ucx/status.h"

#include <cerrno>
#include <cstring>

namespace gaudi::base {

namespace {

/* Let go of what a look-up found. */
void drop(const memory_location &where)
{
    if (where.mapped != nullptr) {
        where.mapped->put();
    }
}

} // namespace

/* Reach host memory: where it is mapped already, else through staging. The
 * reference to its registration goes to the cursor, or is dropped. */
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
    using direction = shim::dma_direction;
    uint64_t va;
    if ((to.backing != nullptr) && (to.backing->va_on(*from.owner, va) == 0)) {
        cursor.way  = first;
        cursor.lane = &lane_of(*first, direction::device_to_host, cursor.left);
        cursor.dst  = va + (cursor.dst - to.backing->va);
        return UCS_OK;
    }
    if ((from.backing != nullptr) &&
        (from.backing->va_on(*to.owner, va) == 0)) {
        cursor.way  = second;
        cursor.lane = &lane_of(*second, direction::host_to_device, cursor.left);
        cursor.src  = va + (cursor.src - from.backing->va);
        return UCS_OK;
    }
    const int ret = first->share_staging(*to.owner);
    if (ret != 0) {
        ucs_error("%s: cannot map the staging memory of %s: %s",
                  to.owner->name().c_str(), from.owner->name().c_str(),
                  std::strerror(-ret));
        return to_status(ret);
    }
    cursor.way    = first;
    cursor.lane   = &lane_of(*first, direction::device_to_host, cursor.left);
    cursor.staged = true;
    cursor.onward = &lane_of(*second, direction::host_to_device, cursor.left);
    cursor.target = cursor.dst;
    return UCS_OK;
}

/* Copy within this process. */
ucs_status_t transfer_engine::plan_local(void *dst, void *src, size_t length,
                                         host_side host, copy_cursor &cursor)
{
    memory_location to;
    memory_location from;
    ucs_status_t status = find_local(role::target, dst, length, host, to);
    if (status != UCS_OK) {
        return status;
    }
    status = find_local(role::source, src, length, host, from);
    if (status != UCS_OK) {
        drop(to);
        return status;
    }

    const bool to_device   = (to.kind == memory_kind::device);
    const bool from_device = (from.kind == memory_kind::device);
    cursor.left            = length;
    cursor.dst             = reinterpret_cast<uintptr_t>(dst);
    cursor.src             = reinterpret_cast<uintptr_t>(src);
    if (!to_device && !from_device) {
        drop(to);
        drop(from);
        return UCS_OK;
    }
    if (to_device && from_device && (to.owner != from.owner)) {
        return plan_between_cards(to, from, cursor);
    }

    status = channel_to(to_device ? *to.owner : *from.owner, cursor.way);
    if (status != UCS_OK) {
        drop(to);
        drop(from);
        return status;
    }
    auto direction = shim::dma_direction::device_to_device;
    if (!from_device) {
        direction = shim::dma_direction::host_to_device;
        plan_host_side(src, from, cursor, cursor.src);
    } else if (!to_device) {
        direction = shim::dma_direction::device_to_host;
        plan_host_side(dst, to, cursor, cursor.dst);
    } else if (from.imported) {
        direction = shim::dma_direction::host_to_device;
    } else if (to.imported) {
        direction = shim::dma_direction::device_to_host;
    }
    cursor.upload = !from_device;
    cursor.lane   = &lane_of(*cursor.way, direction, length);
    return UCS_OK;
}

/* What was found the last time, if that is it again and still holds. */
const memory_location *transfer_engine::find_again(role which,
                                                   const void *address,
                                                   size_t length) const
{
    const memory_location &last = last_found_[which];
    const auto start            = reinterpret_cast<uintptr_t>(address);
    return ((start >= last.start) && (start < last.end) &&
            (length <= last.end - start) &&
            (last.version == table_.version()) && !last.owner->is_lost())
               ? &last
               : nullptr;
}

/* What a pointer leads to. The caller gets a reference to the registration of
 * host memory. */
ucs_status_t transfer_engine::find_local(role which, void *address,
                                         size_t length, host_side host,
                                         memory_location &where)
{
    if (device_table::is_device_address(address)) {
        ucs_status_t status = check_has_card("device memory");
        if (status != UCS_OK) {
            return status;
        }
        const memory_location *again = find_again(which, address, length);
        if (again != nullptr) {
            where = *again;
            return UCS_OK;
        }
    } else if (host == host_side::stage) {
        return UCS_OK;
    }
    if (table_.find(address, length, where) != UCS_OK) {
        ucs_error("gaudi: %zu bytes at %p %s", length, address,
                  table_.why_not(address, length));
        return UCS_ERR_INVALID_ADDR;
    }
    if (where.end != 0) {
        last_found_[which] = where;
    }
    return UCS_OK;
}

/* Find out how to get the bytes there. On an error nothing is held. */
ucs_status_t transfer_engine::plan(const side &dst, const side &src,
                                   size_t length, host_side host,
                                   copy_cursor &cursor)
{
    if ((dst.remote == nullptr) && (src.remote == nullptr)) {
        return plan_local(dst.address, src.address, length, host, cursor);
    }
    if ((dst.remote != nullptr) && (src.remote != nullptr)) {
        ucs_error("gaudi: cannot copy between two other processes");
        return UCS_ERR_INVALID_PARAM;
    }
    const bool put      = (dst.remote != nullptr);
    const side &there   = put ? dst : src;
    void *here          = put ? src.address : dst.address;
    ucs_status_t status = hold_remote(there, length, cursor);
    if (status != UCS_OK) {
        return status;
    }
    cursor.process = there.remote->host();
    status         = (cursor.process != nullptr)
                         ? plan_remote_host(put, there, here, length, cursor)
                         : plan_remote_device(put, there, here, length, host, cursor);
    if (status != UCS_OK) {
        release(cursor);
        return status;
    }
    cursor.left = length;
    return UCS_OK;
}

/* Have memory of another process stay where it is. */
ucs_status_t transfer_engine::hold_remote(const side &there, size_t length,
                                          copy_cursor &cursor)
{
    ucs_status_t status = there.remote->check(there.number(), length);
    if (status == UCS_OK) {
        status = there.remote->hold();
    }
    if (status == UCS_OK) {
        cursor.remote = there.remote;
    }
    return status;
}

/* Where a card of ours finds device memory of another process, which is held.
 */
ucs_status_t transfer_engine::reach_remote(card &user, const side &there,
                                           uint64_t &va)
{
    const int ret = there.remote->va_on(user, there.number(), va);
    if (ret != 0) {
        ucs_error("%s: cannot reach device memory of another process at %p: %s",
                  user.name().c_str(), there.address, std::strerror(-ret));
    }
    /* Nothing that comes by waiting, as NO_RESOURCE would say. */
    return (ret == -EAGAIN) ? UCS_ERR_NO_MEMORY : to_status(ret);
}

/* Host memory of another process: the kernel copies, directly or, for device
 * memory here, staging chunks. */
ucs_status_t transfer_engine::plan_remote_host(bool put, const side &there,
                                               void *here, size_t length,
                                               copy_cursor &cursor)
{
    cursor.there = there.number();
    if (!device_table::is_device_address(here)) {
        cursor.upload = put;
        cursor.host   = static_cast<char *>(here);
        return UCS_OK;
    }
    memory_location where;
    ucs_status_t status =
        find_local(put ? role::source : role::target, here, length,
                   host_side::find_registration, where);
    if (status == UCS_OK) {
        status = channel_to(*where.owner, cursor.way);
    }
    if (status != UCS_OK) {
        return status;
    }
    cursor.staged                   = true;
    cursor.upload                   = !put;
    (put ? cursor.src : cursor.dst) = reinterpret_cast<uintptr_t>(here);
    cursor.lane                     = &lane_of(*cursor.way,
                           put ? shim::dma_direction::device_to_host
                                                   : shim::dma_direction::host_to_device,
                                               length);
    return UCS_OK;
}

/* Device memory of another process: a card of ours copies. It writes to put,
 * and reads to get; host memory here it reads to put. */
ucs_status_t transfer_engine::plan_remote_device(bool put, const side &there,
                                                 void *here, size_t length,
                                                 host_side host,
                                                 copy_cursor &cursor)
{
    ucs_status_t status = check_has_card("device memory of another process");
    if (status != UCS_OK) {
        return status;
    }
    memory_location where;
    status = find_local(put ? role::source : role::target, here, length, host,
                        where);
    if (status != UCS_OK) {
        return status;
    }
    const bool from_device = (where.kind == memory_kind::device);
    if (!from_device && (where.mapped == nullptr) &&
        (host == host_side::find_registration) && (registrations_ != nullptr) &&
        registrations_->remember_host(here, length)) {
        (void)table_.find(here, length, where);
    }
    card &user = from_device ? *where.owner : *home_;
    status     = channel_to(user, cursor.way);
    if (status == UCS_OK) {
        status = reach_remote(user, there, put ? cursor.dst : cursor.src);
    }
    if (status != UCS_OK) {
        drop(where);
        return status;
    }

    uint64_t &own = put ? cursor.src : cursor.dst;
    if (from_device) {
        own = reinterpret_cast<uintptr_t>(here);
    } else {
        plan_host_side(here, where, cursor, own);
        cursor.upload = put;
    }
    cursor.lane =
        &lane_of(*cursor.way,
                 (put == from_device) ? shim::dma_direction::device_to_host
                                      : shim::dma_direction::host_to_device,
                 length);
    return UCS_OK;
}

/* Reach device memory from a chunk of the card's. On an error nothing is held.
 */
ucs_status_t transfer_engine::plan_chunk(role which, const side &device,
                                         size_t length, copy_cursor &cursor)
{
    uint64_t &va = (which == role::target) ? cursor.dst : cursor.src;
    if (device.remote == nullptr) {
        memory_location where;
        ucs_status_t status = find_local(which, device.address, length,
                                         host_side::find_registration, where);
        if (status != UCS_OK) {
            return status;
        }
        va = device.number();
        return channel_to(*where.owner, cursor.way);
    }
    ucs_status_t status = check_has_card("device memory of another process");
    if (status == UCS_OK) {
        status = hold_remote(device, length, cursor);
    }
    if (status != UCS_OK) {
        return status;
    }
    status = channel_to(*home_, cursor.way);
    if (status == UCS_OK) {
        status = reach_remote(*home_, device, va);
    }
    if (status != UCS_OK) {
        release(cursor);
    }
    return status;
}

/* Whether bytes that were packed fit where they are to go. */
ucs_status_t transfer_engine::check_packed(const side &device, size_t length)
{
    if (device.remote != nullptr) {
        return device.remote->check(device.number(), length);
    }
    memory_location where;
    return find_local(role::target, device.address, length,
                      host_side::find_registration, where);
}

void transfer_engine::release(copy_cursor &cursor)
{
    if (cursor.filled >= 0) {
        cursor.way->give_chunk(cursor.filled);
    }
    if (cursor.held != nullptr) {
        cursor.held->put();
    }
    if (cursor.remote != nullptr) {
        cursor.remote->release();
    }
    cursor = {};
}

} // namespace gaudi::base
