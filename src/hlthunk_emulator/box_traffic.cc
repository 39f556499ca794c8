/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box_traffic.h"

#include "hlthunk_emulator/settings.h"
#include "util/process.h"

#include <cerrno>
#include <chrono>
#include <map>

#include <pthread.h>

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

/* The shared state, as long as it is locked. */
class box_traffic::locked {
public:
    explicit locked(const box_traffic &of) : state_(of.box_.state())
    {
        if (pthread_mutex_lock(&state_.traffic_mutex) == EOWNERDEAD) {
            /* Killed in here: the flows may be half changed. Jobs whose flows
             * are unknown have ended. */
            state_.all.erase_if([](const flow &) { return true; });
            pthread_mutex_consistent(&state_.traffic_mutex);
        }
    }
    ~locked() { pthread_mutex_unlock(&state_.traffic_mutex); }
    locked(const locked &)            = delete;
    locked &operator=(const locked &) = delete;

    box_state *operator->() const { return &state_; }
    box_state &operator*() const { return state_; }

private:
    box_state &state_;
};

box_traffic *box_traffic::instance()
{
    return get_settings().timing.has_value()
               ? &util::of_this_process<box_traffic>()
               : nullptr;
}

/* Flows of its number are of a process that was killed. */
box_traffic::box_traffic() : speed_(*get_settings().timing)
{
    const locked state(*this);
    state->all.erase_if(
        [this](const flow &left) { return left.owner == box_.member(); });
}

void box_traffic::drop_the_dead(box_state &state, model_time now) const
{
    if (now - state.looked_for_dead < dead_unseen) {
        return;
    }
    state.looked_for_dead = now;
    std::map<unsigned, bool> alive{{box_.member(), true}};
    state.all.erase_if([&](const flow &known) {
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
    const locked state(*this);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(*state, present);
    if (!state->all.add(added)) {
        log("the timing model is full: job %lu of card %u takes no time",
            added.job, static_cast<unsigned>(added.card));
    }
}

model_time box_traffic::last_byte(unsigned card, uint64_t job)
{
    const locked state(*this);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(*state, present);
    return state->all.earliest_end(speed_, card, job);
}

model_time box_traffic::earliest_end(unsigned card, uint64_t job)
{
    const model_time end = last_byte(card, job);
    return (end == 0) ? 0 : end + nanoseconds(speed_.completion);
}

void box_traffic::forget(unsigned card, uint64_t job)
{
    const locked state(*this);
    state->all.erase_if([&](const flow &known) {
        return (known.card == card) && (known.job == job);
    });
}

void box_traffic::forget(unsigned card)
{
    const locked state(*this);
    state->all.advance(speed_, now());
    state->all.erase_if([&](const flow &known) { return known.card == card; });
}

} // namespace gaudi::emu
