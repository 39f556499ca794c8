/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/port_watch.h"

#include "hlthunk_emulator/settings.h"

namespace gaudi::emu {

namespace {

/* Numbers of messages among the jobs of their card, of which none gets so far;
 * and of their queues among those of the engines. */
uint64_t job_of(unsigned port, uint32_t qpn, uint32_t number)
{
    return (1ull << 63) | (uint64_t{port} << 56) | (uint64_t{qpn} << 32) |
           number;
}

uint16_t queue_of(unsigned port)
{
    return static_cast<uint16_t>(queue_count + internal_queue_count + port);
}

bool is_of_device(uint64_t va)
{
    const asic &kind = *get_settings().kind;
    return (va >= kind.dram_start) && (va < kind.dram_va_end);
}

shared_part part(shared_part first, unsigned port)
{
    return static_cast<shared_part>(static_cast<unsigned>(first) + port);
}

/* What a message goes through: the ports, and at both sides the memory, or the
 * link to the host. */
route route_of(port_end from, const send_wqe &wqe)
{
    using enum shared_part;
    const auto to = peer_of(from);
    route needs;
    needs.add(from.card, part(first_port_out, from.port));
    needs.add(from.card, is_of_device(wqe.local) ? hbm : to_card);
    if (to.has_value()) { /* else the other side is of no model's box */
        needs.add(to->card, part(first_port_in, to->port));
        needs.add(to->card, is_of_device(wqe.remote) ? hbm : from_card);
    }
    return needs;
}

} // namespace

std::unique_ptr<port_watch> port_watch::create(unsigned card)
{
    box_traffic *const model = box_traffic::instance();
    return std::unique_ptr<port_watch>(
        (model != nullptr) ? new port_watch(*model, card) : nullptr);
}

port_watch::~port_watch()
{
    while (!begun_.empty()) {
        drop(begun_.begin()->first);
    }
}

void port_watch::drop(uint64_t job)
{
    model_.forget(card_, job);
    begun_.erase(job);
}

void port_watch::begin(port_end from, uint32_t qpn, uint32_t number,
                       const send_wqe &wqe)
{
    const uint64_t job   = job_of(from.port, qpn, number);
    begun_[job]          = {};
    const double latency = model_.speed().port_latency * 1000;
    model_.add({.job   = job,
                .start = model_time_of(clock::now()) +
                         static_cast<model_time>(latency),
                .end   = 0,
                .left  = static_cast<double>(wqe.size),
                .owner = 0,
                .card  = static_cast<uint16_t>(from.card),
                .queue = queue_of(from.port),
                .needs = route_of(from, wqe)});
}

/* The model is not asked before then: all processes of the box share it. */
port_watch::clock::time_point port_watch::end_of(unsigned port, uint32_t qpn,
                                                 uint32_t number,
                                                 clock::time_point now)
{
    const uint64_t job = job_of(port, qpn, number);
    const auto known   = begun_.find(job);
    if (known == begun_.end()) {
        return {};
    }
    clock::time_point &end = known->second;
    if (end <= now) {
        end = clock::time_point(
            std::chrono::nanoseconds(model_.last_byte(card_, job)));
    }
    return end;
}

void port_watch::end(unsigned port, uint32_t qpn, uint32_t number)
{
    drop(job_of(port, qpn, number));
}

void port_watch::forget(unsigned port, uint32_t qpn)
{
    const uint64_t first = job_of(port, qpn, 0);
    for (auto each = begun_.lower_bound(first);
         (each != begun_.end()) && (each->first <= (first | UINT32_MAX));) {
        const uint64_t job = each->first;
        ++each;
        drop(job);
    }
}

} // namespace gaudi::emu
