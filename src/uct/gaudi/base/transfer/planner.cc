/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/planner.h"

#include "uct/gaudi/base/cards/card_table.h"
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
    ucs_log(failure_level((error == -ESRCH) || (error == -EKEYREVOKED)),
            "gaudi: cannot reach memory of another process at %#lx: %s",
            there.address, std::strerror(-error));
    /* Not transient: UCS_ERR_NO_RESOURCE would make UCP retry forever. */
    return (error == -EAGAIN) ? UCS_ERR_NO_MEMORY : to_status(error);
}

/* A lane writes to the host or to a peer, or reads from there. */
work_queue &outer_queue(lane &by, bool writes, size_t length)
{
    return by.queue_for(
        writes ? direction::device_to_host : direction::host_to_device, length);
}

/* From one lane to another, through chunks that both reach: the other process's
 * where a lane is its. A card without engines for copies within it is both. */
ucs_status_t plan_relay(lane &reader, uint64_t dst, lane &writer, uint64_t src,
                        operation &op)
{
    lane &through    = (reader.owner() != nullptr) ? writer : reader;
    const card *user = ((&through == &writer) ? reader : writer).owner();
    int ret          = -ENOMEM;
    (void)guarded([&] {
        ret = through.share_staging(*user);
        return UCS_OK;
    });
    if (ret != 0) {
        ucs_error("%s: cannot map the staging memory of %s: %s (raise ulimit "
                  "-l, see dmesg)",
                  user->name().c_str(), through.name(), std::strerror(-ret));
        return to_status(ret);
    }
    op.go(way::relay, outer_queue(writer, true, op.left), dst, src);
    op.relay   = &outer_queue(reader, false, op.left);
    op.through = &through;
    return UCS_OK;
}

} // namespace

/* --- which cards are used, and which has memory of this process -----------*/

void planner::use_cards(card &home)
{
    cards_ = home.hold();
    home_  = &home;
    std::fill_n(last_, std::size(last_), found{});
}

/* A memory domain may have opened them since the last time. */
bool planner::has_registrations()
{
    auto &registrations = registration_cache::instance();
    if (ucs_unlikely(registrations_ == nullptr) && registrations.is_open() &&
        registrations.join()) {
        registrations_.reset(&registrations);
    }
    return registrations_ != nullptr;
}

/* Whether there is a card: one that works, or one that was lost. */
bool planner::find_home()
{
    if ((home_ == nullptr) || home_->is_lost()) {
        const held_cards cards = card_table::instance().cards();
        if (card *other = cards.first()) {
            use_cards(*other);
        }
    }
    return home_ != nullptr;
}

ucs_status_t planner::look_up_device(const side &device, size_t length,
                                     device_location &where, lane *&by)
{
    if (!find_home()) {
        ucs_error("gaudi: device memory cannot be reached: this process has "
                  "opened no card");
        return UCS_ERR_NO_DEVICE;
    }
    auto known = map_.find_device(device.address, length);
    if (!known.has_value() && looks_for_cards_) {
        card_table::instance().note_acquired_cards();
        known = map_.find_device(device.address, length);
    }
    if (!known.has_value()) {
        const refusal why = map_.why_not(device.pointer(), length);
        const auto level  = (why.lost != nullptr) ? why.lost->failure_level()
                                                  : UCS_LOG_LEVEL_ERROR;
        ucs_log(level, "gaudi: %zu bytes at %p %s", length, device.pointer(),
                why.text);
        return why.status;
    }
    where                     = *known;
    const ucs_status_t status = lanes_.get(*where.owner, by);
    if ((status == UCS_OK) && where.is_sole) {
        last_[oldest_] = {where, by};
        oldest_        = (oldest_ + 1) % std::size(last_);
    }
    return status;
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

ucs_status_t planner::check(const side &device, size_t length)
{
    if (device.remote != nullptr) {
        return device.remote->check(device.address, length);
    }
    device_location where;
    lane *by;
    return find_device(device, length, where, by);
}

/* --- the plan -------------------------------------------------------------*/

ucs_status_t planner::plan(const side &dst, const side &src, size_t length,
                           host_side host, operation &op)
{
    op.total = op.left = length;
    op.through         = nullptr;
    const bool put     = (dst.remote != nullptr);
    if (put || (src.remote != nullptr)) {
        return plan_remote(put, put ? dst : src, put ? src : dst, host, op);
    }
    if (dst.is_device && src.is_device) {
        return plan_within(dst, src, op);
    }
    device_location where;
    lane *by;
    const bool to_card = dst.is_device;
    const side &device = to_card ? dst : src;
    const ucs_status_t status =
        hold_device(device, length, where, by, op.device[0]);
    return (status == UCS_OK) ? plan_host(to_card, to_card ? src : dst, host,
                                          *by, device.address, op)
                              : status;
}

/* Between host memory and what a lane reaches: directly where its card has
 * mapped that, else through chunks. */
ucs_status_t planner::plan_host(bool to_card, const side &host, host_side how,
                                lane &by, uint64_t there, operation &op)
{
    lane &through    = (op.through != nullptr) ? *op.through : by;
    uint64_t reached = host.address;
    way that         = to_card ? way::upload : way::download;
    if (how == host_side::chunk) {
        op.chunk = through.take_chunk(reserved_chunks, op.ports());
        if (op.chunk == nullptr) {
            return UCS_ERR_NO_RESOURCE;
        }
        reached = op.chunk->va;
        that    = way::direct;
    } else if ((how == host_side::find_registration) &&
               (through.owner() != nullptr) &&
               ((op.registration = find_registration(
                     host, op.left, op.remote != nullptr)) != nullptr)) {
        uint64_t mapped;
        if (op.registration->va_on(*through.owner(), mapped) == 0) {
            reached = mapped + (host.address - op.registration->start);
            that    = way::direct;
        } else {
            op.registration.reset();
        }
    }
    op.go(that, outer_queue(by, !to_card, op.left), to_card ? there : reached,
          to_card ? reached : there);
    op.through = &through;
    return UCS_OK;
}

/* Within this process. Only engines that reach host memory reach what was
 * imported. */
ucs_status_t planner::plan_within(const side &dst, const side &src,
                                  operation &op)
{
    device_location to;
    device_location from;
    lane *reader;
    lane *writer;
    ucs_status_t status = hold_device(dst, op.left, to, reader, op.device[0]);
    if (status == UCS_OK) {
        status = hold_device(src, op.left, from, writer, op.device[1]);
    }
    if (status != UCS_OK) {
        return status;
    }
    if (to.owner == from.owner) {
        work_queue &queue =
            (from.imported || to.imported)
                ? outer_queue(*writer, !from.imported, op.left)
                : writer->queue_for(direction::device_to_device, op.left);
        if (queue.dma != nullptr) {
            op.go(way::direct, queue, dst.address, src.address);
            return UCS_OK;
        }
    }
    return plan_relay(*reader, dst.address, *writer, src.address, op);
}

/* Have ports of our card to the one that has the memory.
 * @return 0 or -errno. */
int planner::find_ports(const side &there, const side &here, lane *by,
                        bool waits, operation &op)
{
    if ((by == nullptr) ||
        (!here.is_device &&
         !by->owner()->device().capabilities().ports_read_host)) {
        return -EOPNOTSUPP;
    }
    lane *ports;
    int error = lanes_.get_ports(*by->owner(), there, waits, ports);
    if (error == 0) {
        error = lane_set::confirm(there, waits);
    }
    if (error == 0) {
        ++ports->users;
        op.by.reset(ports);
        op.moved_by = mover::ports;
    }
    return error;
}

/* Be connected to the process whose cards are to copy.
 * @return 0 or -errno. */
int planner::find_owner(const side &there, operation &op)
{
    owner_lane *owner;
    const int error = lanes_.get(*there.peer, owner);
    if (error == 0) {
        ++owner->users;
        op.by.reset(owner);
        op.moved_by = mover::host;
    }
    return error;
}

/* With memory of another process, on the first route that is open: by the card
 * that has the memory here, else by the first of ours, if there is one. */
ucs_status_t planner::plan_remote(bool put, const side &there, const side &here,
                                  host_side host, operation &op)
{
    waits_for_ports_ = false;
    if (here.remote != nullptr) {
        ucs_error("gaudi: cannot copy between two other processes");
        return UCS_ERR_INVALID_PARAM;
    }
    ucs_status_t status = there.remote->check(there.address, op.left);
    if (status == UCS_OK) {
        status = there.remote->hold();
    }
    if (status != UCS_OK) {
        return status;
    }
    op.remote.reset(there.remote);

    device_location where;
    lane *by = nullptr;
    if (here.is_device) {
        status = hold_device(here, op.left, where, by, op.device[0]);
        if (status != UCS_OK) {
            return status;
        }
    } else if (find_home() && (lanes_.get(*home_, by) != UCS_OK)) {
        by = nullptr;
    }
    int error = -ENODEV;
    const route_list &routes =
        there.remote->routes((by != nullptr) ? by->owner() : nullptr);
    for (const shim::wire &each : routes) {
        error =
            (each == shim::wire::host) ? find_owner(there, op)
            : (here.is_device && where.imported)
                ? -EOPNOTSUPP
                : find_ports(there, here, by, &each + 1 == routes.end(), op);
        if ((error == 0) || (error == -ESRCH) || (error == -EKEYREVOKED)) {
            break;
        }
    }
    waits_for_ports_ = (error == -EINPROGRESS);
    if (error != 0) {
        return waits_for_ports_ ? UCS_ERR_NO_RESOURCE
                                : report_no_way(there, error);
    }
    if (op.moved_by == mover::ports) {
        op.through = by;
        if (here.is_device) {
            op.dst = put ? there.address : here.address;
            op.src = put ? here.address : there.address;
            op.how = way::direct;
        } else {
            status = plan_host(put, here, host, *op.by, there.address, op);
        }
        op.queue = &outer_queue(*op.by, put, op.left); /* ports write */
        return status;
    }
    if (!here.is_device) {
        return plan_host(put, here, host, *op.by, there.address, op);
    }
    return put ? plan_relay(*op.by, there.address, *by, here.address, op)
               : plan_relay(*by, here.address, *op.by, there.address, op);
}

} // namespace gaudi::base
