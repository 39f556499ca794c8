/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/traffic.h"

#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gaudi::emu {

namespace {

constexpr auto parts_of_card = static_cast<unsigned>(shared_part::count);
constexpr size_t all_parts   = size_t{max_cards} * parts_of_card;
constexpr auto never         = std::numeric_limits<model_time>::max();

/* Bytes per nanosecond. */
double capacity_of(const timing_figures &speed, uint16_t number)
{
    const auto part = static_cast<shared_part>(number % parts_of_card);
    switch (part) {
    case shared_part::to_card:
        return speed.to_card;
    case shared_part::from_card:
        return speed.from_card;
    case shared_part::hbm:
        return speed.hbm;
    case shared_part::pdma_all:
        return speed.pdma_all;
    case shared_part::edma_all:
        return speed.edma_all;
    case shared_part::peer_reads:
        return speed.peer_read;
    case shared_part::to_cards:
    case shared_part::from_cards:
        return speed.uplink;
    default:
        return (part < shared_part::first_edma)       ? speed.pdma_engine
               : (part < shared_part::first_port_out) ? speed.edma_engine
                                                      : speed.port;
    }
}

/* The rate of a flow that is alone. */
double alone(const timing_figures &speed, const flow &asked)
{
    double rate      = std::numeric_limits<double>::infinity();
    const auto parts = asked.needs.parts();
    for (const uint16_t part : parts) {
        const auto times = std::count(parts.begin(), parts.end(), part);
        rate             = std::min(rate,
                                    capacity_of(speed, part) / static_cast<double>(times));
    }
    return rate;
}

model_time time_for(double bytes, double rate)
{
    return std::max<model_time>(
        1, static_cast<model_time>(std::ceil(bytes / rate)));
}

bool same_queue(const flow &a, const flow &b)
{
    return (a.card == b.card) && (a.queue == b.queue);
}

} // namespace

/* The first flow of each queue, unless it begins later. */
size_t traffic::find_moving(indices &moving, model_time &next_start) const
{
    indices firsts;
    size_t queues = 0;
    size_t count  = 0;
    next_start    = never;
    for (uint16_t i = 0; i < count_; ++i) {
        const flow &next = flows_[i];
        if ((next.end != 0) ||
            std::any_of(firsts.begin(), firsts.begin() + queues,
                        [&](uint16_t first) {
                            return same_queue(flows_[first], next);
                        })) {
            continue;
        }
        firsts[queues++] = i;
        if (next.start <= now_) {
            moving[count++] = i;
        } else {
            next_start = std::min(next_start, next.start);
        }
    }
    return count;
}

void traffic::share(const timing_figures &speed,
                    std::span<const uint16_t> moving, rates &by_flow) const
{
    std::array<double, all_parts> room; /* what is there for all `users` */
    std::array<uint16_t, all_parts> users;
    std::array<uint16_t, all_parts> used;
    size_t used_count = 0;

    for (const uint16_t i : moving) {
        by_flow[i] = 0;
        for (const uint16_t part : flows_[i].needs.parts()) {
            const auto known = used.begin() + used_count;
            if (std::find(used.begin(), known, part) == known) {
                used[used_count++] = part;
                room[part]         = capacity_of(speed, part);
                users[part]        = 0;
            }
            ++users[part];
        }
    }
    for (size_t rising = moving.size(); rising > 0;) {
        double level    = std::numeric_limits<double>::infinity();
        uint16_t scarce = 0;
        for (const uint16_t part : std::span(used).first(used_count)) {
            if ((users[part] > 0) && (room[part] / users[part] < level)) {
                level  = room[part] / users[part];
                scarce = part;
            }
        }
        level = std::max(level, 1e-12); /* what rounding has left of nothing */
        for (const uint16_t i : moving) {
            const auto parts = flows_[i].needs.parts();
            if ((by_flow[i] > 0) || (std::find(parts.begin(), parts.end(),
                                               scarce) == parts.end())) {
                continue;
            }
            by_flow[i] = level;
            --rising;
            for (const uint16_t part : parts) {
                room[part] -= level;
                --users[part];
            }
        }
    }
}

void traffic::advance(const timing_figures &speed, model_time to)
{
    while (now_ < to) {
        indices all;
        model_time next    = never;
        const size_t count = find_moving(all, next);
        next               = std::min(next, to);
        const std::span<const uint16_t> moving(all.data(), count);
        rates by_flow;
        share(speed, moving, by_flow);
        for (const uint16_t i : moving) {
            next = std::min(next, now_ + time_for(flows_[i].left, by_flow[i]));
        }
        for (const uint16_t i : moving) {
            flow &moved = flows_[i];
            if (now_ + time_for(moved.left, by_flow[i]) <= next) {
                moved.end = next;
            } else {
                moved.left -= by_flow[i] * static_cast<double>(next - now_);
            }
        }
        now_ = next;
    }
}

bool traffic::add(const flow &added)
{
    for (uint32_t i = count_; i-- > 0;) {
        flow &last = flows_[i];
        if (!same_queue(last, added)) {
            continue;
        }
        if ((last.end == 0) && (last.job == added.job) &&
            (last.needs == added.needs)) {
            last.left += added.left;
            return true;
        }
        break;
    }
    if (count_ == max_flows) {
        return false;
    }
    flows_[count_++] = added;
    return true;
}

model_time traffic::earliest_end(const timing_figures &speed, unsigned card,
                                 uint64_t job) const
{
    model_time latest = 0;
    for (uint32_t i = 0; i < count_; ++i) {
        const flow &asked = flows_[i];
        if ((asked.card != card) || (asked.job != job)) {
            continue;
        }
        if (asked.end != 0) {
            latest = std::max(latest, asked.end);
            continue;
        }
        model_time free = now_;
        for (uint32_t before = 0; before <= i; ++before) {
            const flow &ahead = flows_[before];
            if ((ahead.end == 0) && same_queue(ahead, asked)) {
                free = std::max(free, ahead.start) +
                       time_for(ahead.left, alone(speed, ahead));
            }
        }
        latest = std::max(latest, free);
    }
    return latest;
}

} // namespace gaudi::emu
