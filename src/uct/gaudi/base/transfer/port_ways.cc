/* SPDX-License-Identifier: BSD-3-Clause */
/* How channels over cards' ports come about: the process that wants one sends
 * what its end offers in a chunk that both have, and gets there what the other
 * end does. */
#include "uct/gaudi/base/transfer/engine.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

namespace {

/* Before those are asked for again that could not be had. */
constexpr double retry_s = 5;

bool may_come(int error)
{
    return (error == -EAGAIN) || (error == -EINPROGRESS);
}

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

int channel_set::ask_for_ports(port_way &way, card &from, remote_memory &there,
                               channel &peer)
{
    chunk_ptr letter = peer.take_chunk(0);
    if (letter == nullptr) {
        return -EINPROGRESS; /* others are asked for */
    }
    if (sizeof(shim::port_offer) > peer.chunk_bytes()) {
        return -EMSGSIZE;
    }
    int error = 0;
    if (way.offered == nullptr) {
        error = open_end(from, there.place().module, way.offered);
    }
    if (error == 0) {
        std::memcpy(letter->data, &way.offered->offer(),
                    sizeof(shim::port_offer));
        if (way.number == 0) {
            way.number = ++last_number_;
        }
        error = peer.others()->ask_for_ports(there, letter->va, way.number);
    }
    if (error == 0) {
        way.from      = &from;
        way.asked_for = std::move(way.offered);
        way.letter    = std::move(letter);
    } else if (error != -EAGAIN) { /* else the next try has them */
        way.offered.reset();
    }
    return error;
}

int channel_set::take_ports(port_way &way, channel &peer, bool waits)
{
    card &from = *way.from;
    int error =
        peer.others()->ports_answer(waits ? channel::drain_timeout_us : 0);
    if ((error == -EINPROGRESS) || (error == -ETIMEDOUT)) {
        return error; /* it may come yet */
    }
    auto end               = std::move(way.asked_for);
    const chunk_ptr letter = std::move(way.letter);
    if (error == 0) {
        shim::port_offer theirs;
        std::memcpy(&theirs, letter->data, sizeof(theirs));
        error = judge_end(from, end->connect(theirs));
    }
    if (error == 0) {
        way.by = &add(
            channel::create(from, std::move(end), &peer, way.number, options_));
    }
    return error;
}

int channel_set::get_ports(card &from, remote_memory &there, bool waits,
                           channel *&channel_p)
{
    const card_place to = there.place();
    used_way &last      = used_[to.module % used_.size()];
    if (ucs_likely((last.way != nullptr) && (last.owner == there.owner()) &&
                   (last.to == to.address) && (last.from == from.place()) &&
                   (last.way->by != nullptr) && last.way->by->is_usable())) {
        channel_p = last.way->by;
        return 0;
    }
    channel *peer;
    int error = get(there, peer);
    if (error != 0) {
        return error;
    }
    error = -ENOMEM;
    (void)guarded([&] {
        port_way &way = ways_[{from.place(), peer, to.address}];
        error         = get_ports(way, from, there, *peer, waits);
        channel_p     = way.by;
        last          = {there.owner(), to.address, from.place(), &way};
        return UCS_OK;
    });
    return error;
}

/* A connection of which a port has failed is closed, and not made anew for a
 * while. */
int channel_set::get_ports(port_way &way, card &from, remote_memory &there,
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
        take_answer_of_others(way, peer);
        const int error = ask_for_ports(way, from, there, peer);
        if (error != 0) {
            return give_up(way, from, peer, error);
        }
    }
    /* After one timeout the answer is not waited for again for a while. */
    const bool rests =
        (way.error == -ETIMEDOUT) && (ucs_get_time() < way.retries);
    const int error = settle(way, peer, waits && !rests);
    return (waits && rests && (error == -EINPROGRESS)) ? way.error : error;
}

/* There are none for a while, unless they may yet come.
 * @return error; -EINPROGRESS while others are asked for. */
int channel_set::give_up(port_way &way, const card &from, const channel &peer,
                         int error)
{
    if (may_come(error)) {
        return -EINPROGRESS;
    }
    way.error   = error;
    way.retries = ucs_get_time() + ucs_time_from_sec(retry_s);
    ucs_debug("%s: no ports to %s: %s", from.name().c_str(), peer.name(),
              std::strerror(-error));
    return error;
}

/* Take the answer, if it is there. */
int channel_set::settle(port_way &way, channel &peer, bool waits)
{
    const int error = take_ports(way, peer, waits);
    if (error == 0) {
        way.error = -ENETDOWN;
        return 0;
    }
    return give_up(way, *way.from, peer, error);
}

/* A process is asked for one connection at a time: whoever comes takes the
 * answer that another one has not taken. */
void channel_set::take_answer_of_others(const port_way &way, channel &peer)
{
    for (auto &[between, other] : ways_) {
        if ((std::get<channel *>(between) == &peer) && (&other != &way) &&
            (other.asked_for != nullptr)) {
            (void)settle(other, peer, false);
        }
    }
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
