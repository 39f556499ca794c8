/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box_traffic.h"

#include "util/process.h"

#include <chrono>
#include <map>

namespace gaudi::emu {

namespace {

/* How long somebody may go on taking a share who has been killed. */
constexpr model_time dead_unseen = 1'000'000;

model_time now()
{
    return model_time_of(std::chrono::steady_clock::now());
}

model_time nanoseconds(double microseconds)
{
    return static_cast<model_time>(microseconds * 1000);
}

} // namespace

box_traffic *box_traffic::instance()
{
    return get_settings().timing.has_value()
               ? &util::of_this_process<box_traffic>()
               : nullptr;
}

void box_traffic::drop_the_dead(const box::turn &state, model_time now) const
{
    if (now - state->looked_for_dead < dead_unseen) {
        return;
    }
    state->looked_for_dead = now;
    std::map<unsigned, bool> alive{{box_.member(), true}};
    state->all.erase_if([&](const flow &known) {
        const auto [owner, is_new] = alive.try_emplace(known.owner, true);
        if (is_new) { /* asked once: everybody waits meanwhile */
            owner->second = box_.is_there(known.owner);
        }
        return !owner->second;
    });
}

void box_traffic::add(flow added)
{
    added.owner = box_.member();
    const box::turn state(box_);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(state, present);
    if (!state->all.add(added)) {
        log("the timing model is full: job %lu of card %u takes no time",
            added.job, static_cast<unsigned>(added.card));
    }
}

model_time box_traffic::last_byte(unsigned card, uint64_t job)
{
    const box::turn state(box_);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(state, present);
    return state->all.earliest_end(speed_, card, job);
}

model_time box_traffic::earliest_end(unsigned card, uint64_t job)
{
    const model_time end = last_byte(card, job);
    return (end == 0) ? 0 : end + nanoseconds(speed_.completion);
}

void box_traffic::forget(unsigned card, uint64_t job)
{
    const box::turn state(box_);
    state->all.erase_if([&](const flow &known) {
        return (known.card == card) && (known.job == job);
    });
}

void box_traffic::forget(unsigned card)
{
    const box::turn state(box_);
    state->all.advance(speed_, now());
    state->all.erase_if([&](const flow &known) { return known.card == card; });
}

} // namespace gaudi::emu
