/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/lane_set.h"

#include "uct/gaudi/base/cards/routes.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

ucs_status_t lane_set::add(card &owner, lane *&lane_p)
{
    if (owner.place() >= by_place_.size()) {
        by_place_.resize(owner.place() + 1);
    }
    all_.reserve(all_.size() + 1);
    std::unique_ptr<lane> made;
    const ucs_status_t status = card_lane::create(owner, options_, made);
    if (status == UCS_OK) {
        lane_p = by_place_[owner.place()] =
            all_.emplace_back(std::move(made)).get();
    }
    return status;
}

int lane_set::connect(remote_peer &there, owner_lane *&lane_p)
{
    int error = -ENOMEM;
    (void)guarded([&] {
        forget_over();
        all_.reserve(all_.size() + 1);
        std::unique_ptr<owner_lane> made;
        error = there.open_lane(options_, made);
        if (error == 0) {
            lane_p = made.get();
            all_.push_back(std::move(made));
        }
        return UCS_OK;
    });
    return error;
}

port_lane &lane_set::add_ports(card &from,
                               std::unique_ptr<shim::connection> over,
                               owner_lane *peer, uint32_t number)
{
    auto made = std::make_unique<port_lane>(from, std::move(over), peer, number,
                                            options_);
    port_lane &added = *made;
    all_.push_back(std::move(made));
    return added;
}

/* Lanes that are over go when nothing uses them any more: ports first, since
 * they use the lane of the process that they lead to. */
void lane_set::forget_over()
{
    for (const auto &each : all_) {
        if (each->is_over()) {
            each->end();
        }
    }
    std::erase_if(ways_,
                  [](const port_way &way) { return way.peer->has_ended(); });
    forget_unused();
}

void lane_set::forget_unused()
{
    for (port_way &way : ways_) {
        if ((way.by != nullptr) && way.by->has_ended()) {
            way.by = nullptr;
            (void)give_up(way, *way.from, *way.peer, -ENETDOWN);
        }
    }
    for (unsigned round = 0; round < 2; ++round) {
        std::erase_if(all_, [](const auto &each) {
            return each->has_ended() && (each->users == 0);
        });
    }
}

/* --- how ports come about: the process that wants them sends its end's offer,
 * and gets the other end's -------------------------------------------------*/

namespace {

/* Before those are asked for again that could not be had. */
constexpr double retry_s = 5;

/* Before a peer is asked again whose socket is full. */
constexpr double ask_again_s = 0.01;

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

int lane_set::ask_for_ports(port_way &way, const card &from, card_place to,
                            owner_lane &peer)
{
    std::unique_ptr<shim::connection> end;
    int error = open_end(from, to.module, end);
    if (error == 0) {
        way.number = (way.number == 0) ? ++last_number_ : way.number;
        error      = peer.ask_for_ports(
                 way.number, static_cast<uint32_t>(to.address), end->offer());
    }
    if (error == 0) {
        way.asked_for = std::move(end);
    }
    return error;
}

/* Take the answer, if it is there. */
int lane_set::take_ports(port_way &way, card &from, owner_lane &peer,
                         bool waits)
{
    shim::port_offer theirs;
    const ucs_time_t start = ucs_get_time();
    int error;
    while ((error = peer.ports_answer(way.number, theirs)) == -EINPROGRESS) {
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
    way.by = &add_ports(from, std::move(end), &peer, way.number);
    return 0;
}

lane_set::port_way &lane_set::find_way(const card &from, const owner_lane &peer,
                                       pci_address to)
{
    for (port_way &known : ways_) {
        if ((known.from == &from) && (known.peer == &peer) &&
            (known.to == to)) {
            return known;
        }
    }
    port_way &added = ways_.emplace_back();
    added.from      = &from;
    added.peer      = &peer;
    added.to        = to;
    return added;
}

int lane_set::get_ports(card &from, const side &there, bool waits,
                        lane *&lane_p)
{
    owner_lane *peer;
    int error = get(*there.peer, peer);
    if (error != 0) {
        return error;
    }
    error = -ENOMEM;
    (void)guarded([&] {
        const card_place to = there.remote->place();
        port_way &way       = find_way(from, *peer, to.address);
        error               = get_ports(way, from, to, *peer, waits);
        lane_p              = way.by;
        return UCS_OK;
    });
    return error;
}

int lane_set::confirm(const side &there, bool waits)
{
    owner_lane &owner      = *there.peer->in_use;
    const ucs_time_t start = ucs_get_time();
    int error              = -ENOMEM;
    (void)guarded([&] {
        while (
            ((error = owner.confirm(*there.remote, false)) == -EINPROGRESS) &&
            waits &&
            (ucs_get_time() - start < ucs_time_from_sec(longest_wait_s))) {
            util::nap();
        }
        return UCS_OK;
    });
    return error;
}

/* A connection of which a port has failed is closed, and not made anew for a
 * while. */
int lane_set::get_ports(port_way &way, card &from, card_place to,
                        owner_lane &peer, bool waits)
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
        way.by->end();
        forget_unused();
        return way.error;
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
 * again soon. */
int lane_set::give_up(port_way &way, const card &from, const lane &peer,
                      int error)
{
    if (error == -EAGAIN) {
        way.error   = -EINPROGRESS;
        way.retries = ucs_get_time() + ucs_time_from_sec(ask_again_s);
        return way.error;
    }
    way.error   = error;
    way.retries = ucs_get_time() + ucs_time_from_sec(retry_s);
    ucs_debug("%s: no ports to %s: %s", from.name().c_str(), peer.name(),
              std::strerror(-error));
    return error;
}

int lane_set::accept_ports(card &from, shim::port_offer &offer,
                           port_lane *&lane_p)
{
    std::unique_ptr<shim::connection> made;
    int error = open_end(from, offer.own, made);
    if (error == 0) {
        error = judge_end(from, made->accept(offer));
    }
    if (error == 0) {
        offer  = made->offer();
        lane_p = &add_ports(from, std::move(made), nullptr, 0);
    }
    return error;
}

} // namespace gaudi::base
