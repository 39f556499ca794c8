/* SPDX-License-Identifier: BSD-3-Clause */
/* How channels over cards' ports come about: the process that wants one sends
 * its end's offer, and gets the other end's. */
#include "uct/gaudi/base/transfer/engine.h"

#include "util/locks.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

namespace {

/* Before those are asked for again that could not be had. */
constexpr double retry_s = 5;

/* How long an answer is waited for where there is no other way: a short
 * operation may wait for two of them. */
constexpr double longest_wait_s = 0.02;

/* Whether there is an end. @return 0 or -ENOTCONN, said at debug level. */
int judge_end(const card &from, const std::string &why)
{
    if (!why.empty()) {
        ucs_debug("%s: no connection over ports: %s", from.name().c_str(),
                  why.c_str());
    }
    return why.empty() ? 0 : -ENOTCONN;
}

/* Make one. @return As @ref judge_end. */
int open_end(const card &from, unsigned peer,
             std::unique_ptr<shim::connection> &made)
{
    std::string why;
    shim::port_device *ports = ports_of(from, why);
    if (ports != nullptr) {
        why = shim::connection::open(*ports, peer, {}, made);
    }
    return judge_end(from, why);
}

} // namespace

int channel_set::ask_for_ports(port_way &way, const card &from, card_place to,
                               channel &peer)
{
    std::unique_ptr<shim::connection> end;
    int error = open_end(from, to.module, end);
    if (error == 0) {
        way.number = (way.number == 0) ? ++last_number_ : way.number;
        error      = peer.others()->ask_for_ports(
                 way.number, static_cast<uint32_t>(to.address), end->offer());
    }
    if (error == 0) {
        way.asked_for = std::move(end);
    }
    return error;
}

/* Take the answer, if it is there. */
int channel_set::take_ports(port_way &way, card &from, channel &peer,
                            bool waits)
{
    shim::port_offer theirs;
    const ucs_time_t start = ucs_get_time();
    int error;
    while ((error = peer.others()->ports_answer(way.number, theirs)) ==
           -EINPROGRESS) {
        if (!waits || way.is_slow) {
            return error;
        }
        way.is_slow =
            ucs_get_time() - start > ucs_time_from_sec(longest_wait_s);
        util::nap();
    }
    auto end    = std::move(way.asked_for);
    way.is_slow = false;
    if (error == 0) {
        error = judge_end(from, end->connect(theirs));
    }
    if (error != 0) {
        return give_up(way, from, peer, error);
    }
    way.by = &add(
        channel::create(from, std::move(end), &peer, way.number, options_));
    return 0;
}

int channel_set::get_ports(card &from, const side &there, bool waits,
                           channel *&channel_p)
{
    const card_place to = there.remote->place();
    used_way &last      = used_[to.module % used_.size()];
    if (ucs_likely((last.way != nullptr) && (last.peer == there.peer) &&
                   (last.to == to.address) && (last.from == from.place()) &&
                   (last.way->by != nullptr) && last.way->by->is_usable())) {
        channel_p = last.way->by;
        return 0;
    }
    channel *peer;
    int error = get(*there.peer, peer);
    if (error != 0) {
        return error;
    }
    error = -ENOMEM;
    (void)guarded([&] {
        port_way &way = ways_[{from.place(), peer, to.address}];
        error         = get_ports(way, from, to, *peer, waits);
        channel_p     = way.by;
        last          = {there.peer, to.address, from.place(), &way};
        return UCS_OK;
    });
    return error;
}

int channel_set::confirm(const side &there, bool waits)
{
    owner_queue &owner     = *there.peer->in_use->others();
    const ucs_time_t start = ucs_get_time();
    int error;
    while (((error = owner.confirm(*there.remote, false)) == -EINPROGRESS) &&
           waits &&
           (ucs_get_time() - start < ucs_time_from_sec(longest_wait_s))) {
        util::nap();
    }
    return error;
}

/* A connection of which a port has failed is closed, and not made anew for a
 * while. */
int channel_set::get_ports(port_way &way, card &from, card_place to,
                           channel &peer, bool waits)
{
    if (from.is_lost()) {
        return -ENODEV;
    }
    if (way.by != nullptr) {
        if (!way.by->is_over()) {
            return 0;
        }
        ucs_diag("%s: its ports to %s have failed: host memory is used "
                 "instead, for %g s at least",
                 from.name().c_str(), peer.name(), retry_s);
        std::exchange(way.by, nullptr)->end(false);
        forget_unused();
        return give_up(way, from, peer, -ENETDOWN);
    }
    if (way.asked_for == nullptr) {
        if (ucs_get_time() < way.retries) {
            return way.error;
        }
        const int error = ask_for_ports(way, from, to, peer);
        if (error != 0) {
            return give_up(way, from, peer, error);
        }
    }
    return take_ports(way, from, peer, waits);
}

/* There are none for a while. @return error; -EINPROGRESS where it is asked
 * again at once. */
int channel_set::give_up(port_way &way, const card &from, const channel &peer,
                         int error)
{
    if (error == -EAGAIN) {
        return -EINPROGRESS;
    }
    way.error   = error;
    way.retries = ucs_get_time() + ucs_time_from_sec(retry_s);
    ucs_debug("%s: no ports to %s: %s", from.name().c_str(), peer.name(),
              std::strerror(-error));
    return error;
}

int channel_set::accept_ports(card &from, shim::port_offer &letter,
                              channel *&channel_p)
{
    std::unique_ptr<shim::connection> made;
    int error = open_end(from, letter.own, made);
    if (error == 0) {
        error = judge_end(from, made->accept(letter));
    }
    if (error == 0) {
        letter = made->offer();
        channel_p =
            &add(channel::create(from, std::move(made), nullptr, 0, options_));
        channel_p->serve_others();
    }
    return error;
}

int transfer_engine::connect_ports(pci_address address,
                                   shim::port_offer &letter, channel *&ports_p)
{
    card *const from = planner_.find_card(address);
    const int error  = (from != nullptr)
                           ? channels_.accept_ports(*from, letter, ports_p)
                           : -ENODEV;
    if (error == 0) {
        ++ports_p->users;
    }
    return error;
}

ucs_status_t transfer_engine::start_over_ports(flush_domain &domain,
                                               channel &ports, uint64_t target,
                                               uint64_t source, size_t length,
                                               uct_completion_t *completion)
{
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    device_location where;
    channel *by;
    ucs_status_t status = planner_.hold_device(side(source), length, where, by,
                                               op->copy.device[0]);
    if ((status == UCS_OK) &&
        ((where.owner != &ports.owner()) || where.imported)) {
        status = UCS_ERR_INVALID_ADDR;
    }
    if (status != UCS_OK) {
        operations_.put_back(*op);
        return status;
    }
    operations_.start(*op, &domain, operation_kind::copy, completion);
    ++ports.users;
    op->copy.by_owner.reset(&ports);
    op->copy.set_length(length);
    op->copy.moved_by = mover::ports;
    op->copy.go_directly(
        ports.queue_for(shim::dma_direction::device_to_host, length), target,
        source);
    begin(*op);
    return UCS_INPROGRESS;
}

} // namespace gaudi::base
