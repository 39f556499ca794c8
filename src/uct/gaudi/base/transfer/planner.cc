/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/planner.h"

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace gaudi::base {

namespace {

using direction = shim::dma_direction;

/* No way leads to memory of another process. */
ucs_status_t report_no_way(const side &there, int error)
{
    if (error == -EINPROGRESS) { /* it is being made */
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_log(failure_level((error == -ESRCH) || (error == -EKEYREVOKED)),
            "gaudi: cannot reach memory of another process at %#lx: %s",
            there.address, std::strerror(-error));
    /* Not transient: UCS_ERR_NO_RESOURCE would make UCP retry forever. */
    return (error == -EAGAIN) ? UCS_ERR_NO_MEMORY : to_status(error);
}

/* A card writes or reads over PCIe. */
work_queue &pcie_queue(channel &by, bool writes, size_t length)
{
    return by.queue_for(
        writes ? direction::device_to_host : direction::host_to_device, length);
}

/* From one card to another, through chunks that both reach: the other process's
 * where one card is its own. A card without engines for copies within it is
 * both. */
ucs_status_t plan_relay(channel &reader, uint64_t dst, channel &writer,
                        uint64_t src, planned_copy &copy)
{
    channel &through = reader.is_of_card() ? writer : reader;
    const card &user = (&through == &writer) ? reader.owner() : writer.owner();
    const int ret    = through.share_staging(user);
    if (ret != 0) {
        ucs_error("%s: cannot map the staging memory of %s: %s (raise ulimit "
                  "-l, see dmesg)",
                  user.name().c_str(), through.name(), std::strerror(-ret));
        return to_status(ret);
    }
    copy.go_directly(pcie_queue(writer, true, copy.left), dst, src);
    copy.how   = way::relay;
    copy.relay = &pcie_queue(reader, false, copy.left);
    return UCS_OK;
}

} // namespace

ucs_status_t planner::hold(const side &there, size_t length, held_remote &held)
{
    ucs_status_t status = there.remote->check(there.address, length);
    if (status == UCS_OK) {
        status = there.remote->hold();
    }
    if (status == UCS_OK) {
        held.reset(there.remote);
    }
    return status;
}

ucs_status_t planner::plan(const side &dst, const side &src, size_t length,
                           host_side host, planned_copy &copy)
{
    copy.queue = nullptr;
    copy.set_length(length);
    const bool put    = (dst.remote != nullptr);
    const side &there = put ? dst : src;
    if (there.remote != nullptr) {
        const side &here = put ? src : dst;
        if (here.remote != nullptr) {
            ucs_error("gaudi: cannot copy between two other processes");
            return UCS_ERR_INVALID_PARAM;
        }
        const ucs_status_t status = hold(there, length, copy.remote);
        return (status == UCS_OK)
                   ? plan_remote_device(put, there, here, host, copy)
                   : status;
    }
    if (dst.is_device && src.is_device) {
        return plan_between_devices(dst, src, copy);
    }
    device_location where;
    channel *by;
    const bool to_card = dst.is_device;
    const side &device = to_card ? dst : src;
    const ucs_status_t status =
        hold_device(device, length, where, by, copy.device[0]);
    if (status == UCS_OK) {
        plan_host_side(to_card, to_card ? src : dst, host, *by, device.address,
                       copy);
    }
    return status;
}

/* Between host memory and what a card reaches: where the memory is of this
 * process and mapped already, else through staging. */
void planner::plan_host_side(bool to_card, const side &host, host_side how,
                             channel &by, uint64_t va, planned_copy &copy)
{
    uint64_t reached = host.address;
    copy.how         = to_card ? way::upload : way::download;
    if ((how == host_side::find_registration) && by.is_of_card() &&
        ((copy.registration = find_registration(
              host, copy.left, copy.remote != nullptr)) != nullptr)) {
        uint64_t mapped;
        if (copy.registration->va_on(by.owner(), mapped) == 0) {
            reached  = mapped + (host.address - copy.registration->start);
            copy.how = way::direct;
        } else {
            copy.registration.reset();
        }
    }
    copy.queue = &pcie_queue(by, !to_card, copy.left);
    copy.dst   = to_card ? va : reached;
    copy.src   = to_card ? reached : va;
}

held_registration planner::find_registration(const side &host, size_t length,
                                             bool remember)
{
    host_region *known = host.registration;
    if ((known != nullptr) && known->covers(host.address, length) &&
        known->hold()) {
        return held_registration(known);
    }
    return held_registration(
        has_registrations()
            ? registrations_->find_host(host.pointer(), length,
                                        remember && remember_host_)
            : nullptr);
}

/* Within this process. Only engines that reach host memory reach what was
 * imported. From card to card the bytes go through staging memory that both
 * reach. */
ucs_status_t planner::plan_between_devices(const side &dst, const side &src,
                                           planned_copy &copy)
{
    device_location to;
    device_location from;
    channel *reader;
    channel *writer;
    ucs_status_t status =
        hold_device(dst, copy.left, to, reader, copy.device[0]);
    if (status == UCS_OK) {
        status = hold_device(src, copy.left, from, writer, copy.device[1]);
    }
    if (status != UCS_OK) {
        return status;
    }
    if (to.owner == from.owner) {
        work_queue &queue =
            (from.imported || to.imported)
                ? pcie_queue(*writer, !from.imported, copy.left)
                : writer->queue_for(direction::device_to_device, copy.left);
        if (queue.dma != nullptr) {
            copy.go_directly(queue, dst.address, src.address);
            return UCS_OK;
        }
    }
    return plan_relay(*reader, dst.address, *writer, src.address, copy);
}

/* Have ports of our card to the one that has the memory. */
int planner::find_ports(const side &there, channel &by, bool waits,
                        channel *&ports, planned_copy &copy)
{
    int error = channels_.get_ports(by.owner(), there, waits, ports);
    if (error == 0) {
        error = channels_.confirm(there, waits);
    }
    if (error == 0) {
        ++ports->users;
        copy.by_owner.reset(ports);
        copy.staged_by = &by;
        copy.moved_by  = mover::ports;
    }
    return error;
}

/* Over ports of our card, which writes; a get is written by the other
 * process's card.
 * @return 0 or -errno. */
int planner::plan_over_ports(bool put, const side &there, const side &here,
                             host_side host, channel &by, bool waits,
                             planned_copy &copy)
{
    channel *ports;
    const int error =
        (here.is_device || by.owner().device().capabilities().ports_read_host)
            ? find_ports(there, by, waits, ports, copy)
            : -EOPNOTSUPP;
    if (error != 0) {
        return error;
    }
    if (!here.is_device) {
        plan_host_side(put, here, host, by, there.address, copy);
        copy.queue = &pcie_queue(*ports, put, copy.left);
        return 0;
    }
    copy.go_directly(pcie_queue(*ports, put, copy.left),
                     put ? there.address : here.address,
                     put ? here.address : there.address);
    return 0;
}

/* Be connected to the process whose cards are to copy. */
int planner::find_owner(const side &there, channel *&others, planned_copy &copy)
{
    const int error = channels_.get(*there.peer, others);
    if (error == 0) {
        ++others->users;
        copy.by_owner.reset(others);
        copy.moved_by = mover::host;
    }
    return error;
}

/* The same by a card of its process.
 * @param by  The channel of our card that has the memory here, if one has. */
ucs_status_t planner::plan_by_owner(bool put, const side &there,
                                    const side &here, channel &others,
                                    channel *by, planned_copy &copy)
{
    if (!here.is_device) {
        plan_host_side(put, here, host_side::stage, others, there.address,
                       copy);
        return UCS_OK;
    }
    return put ? plan_relay(others, there.address, *by, here.address, copy)
               : plan_relay(*by, here.address, others, there.address, copy);
}

/* Device memory of another process, on the first route that is open.
 * @param by    The channel of our card, if there is one.
 * @param plan  Called with a route, and whether it is the last one: 0, or
 *              -errno. */
template <typename Plan>
ucs_status_t planner::take_first_route(const side &there, const channel *by,
                                       Plan &&plan)
{
    int error = -ENODEV;
    const route_list &routes =
        there.remote->routes((by != nullptr) ? &by->owner() : nullptr);
    for (const shim::wire &each : routes) {
        error = plan(each, &each + 1 == routes.end());
        if (error == 0) {
            return UCS_OK;
        }
        if ((error == -ESRCH) || (error == -EKEYREVOKED)) {
            break;
        }
    }
    return report_no_way(there, error);
}

/* By the card that has the memory here, else by the first of ours, if there is
 * one. */
ucs_status_t planner::plan_remote_device(bool put, const side &there,
                                         const side &here, host_side host,
                                         planned_copy &copy)
{
    device_location where;
    channel *by = nullptr;
    if (here.is_device) {
        const ucs_status_t status =
            hold_device(here, copy.left, where, by, copy.device[0]);
        if (status != UCS_OK) {
            return status;
        }
    } else if (find_home()) {
        (void)channels_.get(*home_, by);
    }
    channel *others = nullptr;
    const ucs_status_t status =
        take_first_route(there, by, [&](shim::wire over, bool is_last) -> int {
            if (over == shim::wire::host) {
                return find_owner(there, others, copy);
            }
            return (here.is_device && where.imported)
                       ? -EOPNOTSUPP
                       : plan_over_ports(put, there, here, host, *by, is_last,
                                         copy);
        });
    return ((status == UCS_OK) && (others != nullptr))
               ? plan_by_owner(put, there, here, *others, by, copy)
               : status;
}

ucs_status_t planner::reach(const side &device, size_t length, bool to_device,
                            channel *&by, uint64_t &va, planned_copy &copy)
{
    va = device.address;
    if (device.remote == nullptr) {
        device_location where;
        return hold_device(device, length, where, by, copy.device[0]);
    }
    ucs_status_t status = hold(device, length, copy.remote);
    if (status != UCS_OK) {
        return status;
    }
    if (!find_home() || ((status = channels_.get(*home_, by)) != UCS_OK)) {
        by = nullptr;
    }
    return take_first_route(
        device, by, [&](shim::wire over, bool is_last) -> int {
            if (over == shim::wire::host) {
                return find_owner(device, by, copy);
            }
            if (!by->owner().device().capabilities().ports_read_host) {
                return -EOPNOTSUPP;
            }
            channel *ports;
            const int error = find_ports(device, *by, is_last, ports, copy);
            if (error == 0) {
                copy.queue = &pcie_queue(*ports, to_device, length);
            }
            return error;
        });
}

ucs_status_t planner::check(const side &device, size_t length)
{
    if (device.remote != nullptr) {
        return device.remote->check(device.address, length);
    }
    device_location where;
    channel *by;
    return find_device(device, length, where, by);
}

} // namespace gaudi::base
