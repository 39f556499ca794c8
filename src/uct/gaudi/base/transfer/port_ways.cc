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

/* Make one end. @return 0 or -ENOTCONN, said at debug level. */
int open_end(const card &from, unsigned peer, copy_counts &counts,
             std::unique_ptr<shim::connection> &made)
{
    std::string why;
    shim::port_device *ports = ports_of(from, why);
    if (ports != nullptr) {
        why = shim::connection::open(
            *ports, peer, {.watcher = &counts.ports_of(from.name())}, made);
    }
    if (made != nullptr) {
        counts.add(from.name(), made->offer());
    }
    if (made == nullptr) {
        ucs_debug("%s: no connection over ports: %s", from.name().c_str(),
                  why.c_str());
    }
    return (made != nullptr) ? 0 : -ENOTCONN;
}

/* The same of connecting it. */
int connect_end(const card &from, shim::connection &end,
                const shim::port_offer &theirs)
{
    const std::string why = end.connect(theirs);
    if (!why.empty()) {
        ucs_debug("%s: no connection over ports: %s", from.name().c_str(),
                  why.c_str());
    }
    return why.empty() ? 0 : -ENOTCONN;
}

/* Writes, and what the other process is asked to write. */
work_queue &queue_of(channel &ports, bool put, size_t length)
{
    return ports.queue_for(put ? shim::dma_direction::device_to_host
                               : shim::dma_direction::host_to_device,
                           length);
}

} // namespace

int channel_set::ask_for_ports(port_way &way, card &from, remote_memory &there,
                               channel &peer)
{
    std::unique_ptr<shim::connection> made;
    chunk_ptr letter = peer.take_chunk(0);
    if (letter == nullptr) {
        return -EAGAIN;
    }
    if (sizeof(shim::port_offer) > peer.chunk_bytes()) {
        return -EMSGSIZE;
    }
    int error = open_end(from, there.place().module, *counts_, made);
    if (error == 0) {
        std::memcpy(letter->data, &made->offer(), sizeof(shim::port_offer));
        if (way.number == 0) {
            way.number = last_number_ += 2;
        }
        error = peer.others()->ask_for_ports(there, letter->va, way.number ^ 1);
    }
    if (error == 0) {
        way.asked_for = std::move(made);
        way.letter    = std::move(letter);
    }
    return error;
}

int channel_set::take_ports(port_way &way, card &from, channel &peer,
                            bool waits)
{
    int error =
        peer.others()->ports_answer(waits ? channel::drain_timeout_us : 0);
    if (error == -EINPROGRESS) {
        return error;
    }
    auto end               = std::move(way.asked_for);
    const chunk_ptr letter = std::move(way.letter);
    if (error == 0) {
        shim::port_offer theirs;
        std::memcpy(&theirs, letter->data, sizeof(theirs));
        error = connect_end(from, *end, theirs);
    }
    if (error == 0) {
        channel *const before = way.by;
        way.number ^= 1;
        way.by = &add(channel::create(from, std::move(end), &peer, way.number,
                                      options_, *counts_));
        if (before != nullptr) {
            before->end(false);
            std::erase_if(all_, [&](const auto &each) {
                return (each.get() == before) && (before->users == 0);
            });
        }
    }
    return error;
}

int channel_set::get_ports(card &from, remote_memory &there, channel &peer,
                           bool waits, channel *&channel_p)
{
    int error = -ENOMEM;
    (void)guarded([&] {
        port_way &way = ways_[{from.place(), &peer, there.place().address}];
        error         = get_ports(way, from, there, peer, waits);
        channel_p     = way.by;
        return UCS_OK;
    });
    return error;
}

/* Those that do not work any more are replaced at once, and so, now and then,
 * are those that have fewer ports than they could. What has just replaced
 * others is given up for a while. */
int channel_set::get_ports(port_way &way, card &from, remote_memory &there,
                           channel &peer, bool waits)
{
    const bool works = (way.by != nullptr) && !way.by->is_over();
    if (ucs_likely(works && way.by->is_whole())) {
        return 0;
    }
    if (from.is_lost()) {
        return -ENODEV;
    }
    const ucs_time_t now = ucs_get_time();
    const ucs_time_t end = now + ucs_time_from_sec(retry_s);
    int error            = 0;
    if (way.asked_for == nullptr) {
        if (now < way.retries) {
            return works ? 0 : way.error;
        }
        if (works && !way.by->could_have_more()) {
            way.retries = end;
            return 0;
        }
        if (way.was_made && !works) {
            ucs_diag("%s: its ports to %s do not work any more",
                     from.name().c_str(), peer.name());
        }
        error = ask_for_ports(way, from, there, peer);
    }
    if (error == 0) {
        error = take_ports(way, from, peer, waits && !works);
    }
    if (error == 0) {
        way.error    = -ENETDOWN;
        way.retries  = way.was_made ? end : 0;
        way.was_made = true;
    } else if (!may_come(error)) {
        way.error   = error;
        way.retries = end;
        ucs_debug("%s: no ports to %s: %s", from.name().c_str(), peer.name(),
                  std::strerror(-error));
    }
    return works ? 0 : error;
}

int channel_set::accept_ports(card &from, shim::port_offer &letter,
                              channel *&channel_p)
{
    std::unique_ptr<shim::connection> made;
    int error = open_end(from, letter.own, *counts_, made);
    if (error == 0) {
        error = connect_end(from, *made, letter);
    }
    if (error == 0) {
        letter    = made->offer();
        channel_p = &add(channel::create(from, std::move(made), nullptr, 0,
                                         options_, *counts_));
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
                                               const side &src, size_t length,
                                               uct_completion_t *completion)
{
    ucs_status_t status = planner_.check(src, length);
    if (status != UCS_OK) {
        return status;
    }
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    operations_.start(*op, &domain, operation_kind::copy, completion);
    ++ports.users;
    op->copy.by_owner.reset(&ports);
    op->copy.left        = length;
    op->copy.is_imported = true;
    op->copy.go_directly(
        ports.queue_for(shim::dma_direction::device_to_host, length), target,
        src.address);
    begin(*op);
    return UCS_INPROGRESS;
}

/* Have ports of our card to the one that has the memory. */
int planner::find_ports(const side &there, channel &by, bool waits,
                        channel *&ports, planned_copy &copy)
{
    channel *peer;
    int error = channels_.get(*there.remote, peer);
    if (error == 0) {
        error =
            channels_.get_ports(by.owner(), *there.remote, *peer, waits, ports);
    }
    if (error == 0) {
        ++ports->users;
        copy.by_owner.reset(ports);
        copy.staged_by = &by;
    }
    return error;
}

/* Over ports of our card, which writes; what it is to have, the other process's
 * card writes. */
int planner::plan_over_ports(bool put, const side &there, const side &here,
                             host_side host, channel &by, bool waits,
                             planned_copy &copy)
{
    channel *ports;
    const int error = find_ports(there, by, waits, ports, copy);
    if (error != 0) {
        return error;
    }
    if (!here.is_device) {
        plan_host_side(put, here, host, by, there.address, copy);
        copy.queue = &queue_of(*ports, put, copy.left);
        return 0;
    }
    copy.go_directly(queue_of(*ports, put, copy.left),
                     put ? there.address : here.address,
                     put ? here.address : there.address);
    copy.is_imported = true;
    return 0;
}

} // namespace gaudi::base
