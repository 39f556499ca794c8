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
        error = open_end(from, there.place().module, *counts_, way.offered);
    }
    if (error == 0) {
        std::memcpy(letter->data, &way.offered->offer(),
                    sizeof(shim::port_offer));
        if (way.number == 0) {
            way.number = last_number_ += 2;
        }
        error = peer.others()->ask_for_ports(there, letter->va, way.number ^ 1);
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
        channel *const before = way.by;
        way.number ^= 1;
        way.by = &add(channel::create(from, std::move(end), &peer, way.number,
                                      options_, *counts_));
        if (before != nullptr) {
            before->end(false);
            forget_unused(); /* and those before, if they are not used now */
        }
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
                   (last.way->by != nullptr) && last.way->by->is_whole())) {
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

/* Those that do not work any more are replaced at once, and so, now and then,
 * are those that have fewer ports than they could. What has just replaced
 * others is given up for a while. */
int channel_set::get_ports(port_way &way, card &from, remote_memory &there,
                           channel &peer, bool waits)
{
    if ((way.by != nullptr) && way.by->is_whole()) {
        way.offered.reset(); /* its links have come back */
        return 0;
    }
    const bool works = way.works();
    if (from.is_lost()) {
        return -ENODEV;
    }
    if (way.asked_for == nullptr) {
        const ucs_time_t now = ucs_get_time();
        if (now < (works ? way.grows : way.retries)) {
            return works ? 0 : way.error;
        }
        if (works && !way.by->could_have_more()) {
            way.offered.reset();
            way.grows = now + ucs_time_from_sec(retry_s);
            return 0;
        }
        if (way.was_made && !works) {
            ucs_diag("%s: its ports to %s do not work any more",
                     from.name().c_str(), peer.name());
        }
        take_answer_of_others(way, peer);
        const int error = ask_for_ports(way, from, there, peer);
        if (error != 0) {
            const int why = give_up(way, from, peer, error);
            return works ? 0 : why;
        }
    }
    /* Who has waited in vain waits no more for a while. */
    const bool rests =
        (way.error == -ETIMEDOUT) && (ucs_get_time() < way.retries);
    const int error = settle(way, peer, waits && !works && !rests);
    return works                                         ? 0
           : (waits && rests && (error == -EINPROGRESS)) ? way.error
                                                         : error;
}

/* It is not to be had for a while, unless it may yet come.
 * @return error; -EINPROGRESS while another one is asked for. */
int channel_set::give_up(port_way &way, const card &from, const channel &peer,
                         int error)
{
    if (may_come(error)) {
        return -EINPROGRESS;
    }
    way.error = error;
    (way.works() ? way.grows : way.retries) =
        ucs_get_time() + ucs_time_from_sec(retry_s);
    ucs_debug("%s: no%s ports to %s: %s", from.name().c_str(),
              way.works() ? " other" : "", peer.name(), std::strerror(-error));
    return error;
}

/* Take the answer, if it is there. */
int channel_set::settle(port_way &way, channel &peer, bool waits)
{
    const int error = take_ports(way, peer, waits);
    if (error == 0) {
        way.error   = -ENETDOWN;
        way.retries = way.grows =
            way.was_made ? ucs_get_time() + ucs_time_from_sec(retry_s) : 0;
        way.was_made = true;
        return 0;
    }
    return give_up(way, *way.from, peer, error);
}

/* A process is asked for one connection at a time: whoever comes takes the
 * answer that somebody else has not. */
void channel_set::take_answer_of_others(const port_way &way, channel &peer)
{
    for (auto &[between, other] : ways_) {
        if ((std::get<channel *>(between) == &peer) && (&other != &way) &&
            (other.asked_for != nullptr)) {
            (void)settle(other, peer, false);
        }
    }
}

int channel_set::join_ports(card &one, card &other, port_way &there,
                            port_way &back)
{
    std::unique_ptr<shim::connection> ends[2];
    int error = open_end(one, other.device().module_id(), *counts_, ends[0]);
    if (error == 0) {
        error = open_end(other, one.device().module_id(), *counts_, ends[1]);
    }
    if (error == 0) {
        error = judge_end(one, ends[0]->accept(ends[1]->offer()));
    }
    if (error == 0) {
        error = judge_end(other, ends[1]->connect(ends[0]->offer()));
    }
    if (error == 0) {
        there.by = &add(channel::create(one, std::move(ends[0]), nullptr, 0,
                                        options_, *counts_));
        back.by  = &add(channel::create(other, std::move(ends[1]), nullptr, 0,
                                        options_, *counts_));
    }
    return error;
}

/* Both ends go together: what one writes the other one has to take. */
int channel_set::get_ports(card &from, card &to, channel *&channel_p)
{
    int error = -ENOMEM;
    (void)guarded([&] {
        port_way &there = ways_[{from.place(), nullptr, to.address()}];
        port_way &back  = ways_[{to.place(), nullptr, from.address()}];
        const bool work = there.works() && back.works();
        error           = work ? 0 : there.error;
        if (!work && (ucs_get_time() >= there.retries)) {
            for (port_way *each : {&there, &back}) {
                if (each->by != nullptr) {
                    std::exchange(each->by, nullptr)->end(false);
                }
                each->retries = ucs_get_time() + ucs_time_from_sec(retry_s);
            }
            forget_over();
            error = join_ports(from, to, there, back);
        }
        channel_p = there.by;
        return UCS_OK;
    });
    return error;
}

int channel_set::find_mapping(card &from, remote_memory &there,
                              uint64_t &added_p)
{
    channel *peer;
    int error = get(there, peer);
    if (error != 0) {
        return error;
    }
    error = -ENOMEM;
    (void)guarded([&] {
        port_way &way = ways_[{from.place(), peer, there.place().address}];
        error         = find_mapping(way, there, *peer, added_p);
        return UCS_OK;
    });
    return error;
}

int channel_set::find_mapping(port_way &way, remote_memory &there,
                              channel &peer, uint64_t &added_p)
{
    using mapping     = remote_memory::mapping;
    const auto wanted = there.mapped();
    if (way.to_map != nullptr) {
        const uint64_t answer =
            std::atomic_ref(*reinterpret_cast<uint64_t *>(way.answer->data));
        if (answer != mapping::not_known) {
            std::erase_if(way.mapped, [](const auto &entry) {
                return entry.first.expired();
            });
            way.mapped[std::exchange(way.to_map, nullptr)] = answer;
            way.answer.reset();
        }
    }
    const auto known = way.mapped.find(wanted);
    if (known != way.mapped.end()) {
        added_p = known->second;
        return (added_p != mapping::not_to_be) ? 0 : -EFAULT;
    }
    if (way.to_map == nullptr) {
        if (peer.chunk_bytes() % sizeof(uint64_t) != 0) {
            return -EMSGSIZE; /* the answer is a word */
        }
        chunk_ptr answer = peer.take_chunk(0);
        if (answer == nullptr) {
            return -EAGAIN;
        }
        std::memset(answer->data, 0, sizeof(uint64_t));
        if (peer.others()->ask_to_map(there, answer->va, way.number) == 0) {
            way.to_map = wanted;
            way.answer = std::move(answer);
        }
    }
    return -EINPROGRESS;
}

int channel_set::accept_ports(card &from, shim::port_offer &letter,
                              channel *&channel_p)
{
    std::unique_ptr<shim::connection> made;
    int error = open_end(from, letter.own, *counts_, made);
    if (error == 0) {
        error = judge_end(from, made->accept(letter));
    }
    if (error == 0) {
        letter    = made->offer();
        channel_p = &add(channel::create(from, std::move(made), nullptr, 0,
                                         options_, *counts_));
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

held_registration transfer_engine::map_host(const channel &ports,
                                            const side &host, size_t length,
                                            uint64_t &va_p)
{
    held_registration found = planner_.find_registration(host, length, true);
    if (found != nullptr) {
        uint64_t first;
        if (found->va_on(ports.owner(), first) != 0) {
            return nullptr;
        }
        va_p = first + (host.address - found->start);
    }
    return found;
}

ucs_status_t transfer_engine::start_over_ports(
    flush_domain &domain, channel &ports, uint64_t target, uint64_t source,
    held_registration mapped, size_t length, uct_completion_t *completion)
{
    if (mapped == nullptr) {
        const ucs_status_t status =
            planner_.check(side(source), length, &ports.owner());
        if (status != UCS_OK) {
            return status;
        }
    }
    operation *op = operations_.take();
    if (op == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    operations_.start(*op, &domain, operation_kind::copy, completion);
    ++ports.users;
    op->copy.by_owner.reset(&ports);
    op->copy.registration = std::move(mapped);
    op->copy.left         = length;
    op->copy.is_imported  = true;
    op->copy.go_directly(
        ports.queue_for(shim::dma_direction::device_to_host, length), target,
        source);
    begin(*op);
    return UCS_INPROGRESS;
}

} // namespace gaudi::base
