/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/job_table.h"

#include "hlthunk_emulator/settings.h"

#include <algorithm>

namespace gaudi::emu {

void sleepers::sleep(card_lock &lock, clock::time_point deadline)
{
    ++count_;
    if (deadline == clock::time_point::max()) {
        changed_.wait(lock);
    } else {
        changed_.wait_until(lock, deadline);
    }
    --count_;
    if (stopping_) {
        changed_.notify_all();
    }
}

void job_table::begin(uint64_t seq, uint32_t queue, uint32_t parts,
                      const fault_effect *fate)
{
    slot_of(seq).parts = parts;
    ++counters_.jobs;
    if (watch_ != nullptr) {
        watch_->submitted(seq, queue);
    }
    if (fate == nullptr) {
        return;
    }
    const bool lost = (fate->kind == fault_kind::lose);
    if (lost || (fate->kind == fault_kind::delay)) {
        hold(seq, clock::now() + fate->time, lost);
    } else {
        fates_.emplace_back(seq, *fate);
    }
}

void job_table::abort(job &owner)
{
    if (owner.status == shim::cs_completed) {
        owner.status = shim::cs_aborted;
        ++counters_.jobs_aborted;
    }
}

/* A job has ended, or would have. */
void job_table::meet_fate(job &owner)
{
    const auto found =
        std::find_if(fates_.begin(), fates_.end(),
                     [&](const auto &each) { return each.first == owner.seq; });
    if (found == fates_.end()) {
        return;
    }
    const fault_effect fate = found->second;
    fates_.erase(found);
    abort(owner);
    if (fate.kind != fault_kind::abort) {
        break_down(fate);
    }
}

void job_table::break_down(const fault_effect &why)
{
    if (breakdown_) {
        return;
    }
    breakdown_ = why;
    for (job &each : slots_) {
        if (each.parts > 0) {
            abort(each);
        }
    }
    /* The driver says of no job any more how it ended. */
    completed_.clear();
    waiting_.wake();
}

/* --- holds ---------------------------------------------------------------- */

job_table::held_job *job_table::find_held(uint64_t seq)
{
    const auto found =
        std::find_if(held_.begin(), held_.end(),
                     [seq](const held_job &each) { return each.seq == seq; });
    return (found == held_.end()) ? nullptr : &*found;
}

void job_table::hold(uint64_t seq, clock::time_point until, bool lost)
{
    if (held_job *const held = find_held(seq)) {
        held->until = std::max(held->until, until);
    } else {
        held_.push_back({seq, until, lost});
        ++slot_of(seq).parts;
    }
    waiting_.wake(); /* who sleeps wakes up in time for it */
}

/* The model may have found out that the job takes longer. */
bool job_table::is_over(held_job &held, clock::time_point now)
{
    if (slot_of(held.seq).status == shim::cs_aborted) {
        return true;
    }
    if ((held.until <= now) && (watch_ != nullptr)) {
        held.until = std::max(held.until, watch_->end_of(held.seq));
    }
    return held.until <= now;
}

void job_table::end_holds_until(clock::time_point now)
{
    std::erase_if(held_, [&](held_job &held) {
        job &owner = slot_of(held.seq);
        if (!is_over(held, now)) {
            return false;
        }
        if (held.lost && (owner.status == shim::cs_completed)) {
            log("%s: job %lu runs for too long", name_, held.seq);
            owner.status = shim::cs_timed_out;
            ++counters_.jobs_aborted;
            break_down({.kind = fault_kind::reset});
        }
        if (watch_ != nullptr) {
            watch_->leave_model(held.seq);
        }
        end_part(owner);
        return true;
    });
}

job_table::clock::time_point job_table::awake_after(uint64_t seq)
{
    const held_job *const held = find_held(seq);
    return ((watch_ == nullptr) || (held == nullptr))
               ? clock::time_point{}
               : watch_->awake_after(held->until);
}

void job_table::sleep(card_lock &lock, clock::time_point deadline)
{
    for (const held_job &held : held_) {
        deadline = std::min(deadline, held.until);
    }
    waiting_.sleep(lock, deadline);
}

void job_table::abandon()
{
    for (const job &left : slots_) {
        if (left.parts > 0) {
            watch_->abandon_job(left.seq, left.status);
        }
    }
}

} // namespace gaudi::emu
