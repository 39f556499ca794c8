/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The jobs of an open card: those under way, and how those ended that did so
 * lately. A job has a slot, as in the driver, until the one that is so many
 * numbers behind it is submitted.
 *
 * Knows nothing of queues. But for `completed_jobs` its card's lock protects
 * it.
 */
#pragma once

#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/job_watch.h"
#include "hlthunk_shim/abi/hlthunk.h"
#include "util/locks.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gaudi::emu {

using card_lock = std::unique_lock<util::brief_lock>;

/** Jobs that completed lately, to be asked about without a lock. */
class completed_jobs {
public:
    void add(uint64_t seq) { of(seq).store(seq, std::memory_order_release); }
    [[nodiscard]] bool has(uint64_t seq)
    {
        return of(seq).load(std::memory_order_acquire) == seq;
    }
    void clear()
    {
        for (auto &slot : slots_) {
            slot.store(0, std::memory_order_relaxed);
        }
    }

private:
    std::atomic<uint64_t> &of(uint64_t seq)
    {
        return slots_[seq % shim::max_cs_in_flight];
    }

    std::atomic<uint64_t> slots_[shim::max_cs_in_flight]{};
};

/** Threads that sleep until something changes on a card. A card that closes has
 *  to know who still is inside. */
class sleepers {
public:
    using clock = std::chrono::steady_clock;

    void sleep(card_lock &lock, clock::time_point deadline);

    void wake()
    {
        if ((count_ > 0) || stopping_) {
            changed_.notify_all();
        }
    }

    /** Wake all, and wait until they are gone and something is done. */
    template <typename Done>
    void stop(card_lock &lock, Done &&done)
    {
        stopping_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return (count_ == 0) && done(); });
    }

    [[nodiscard]] bool are_stopped() const { return stopping_; }

private:
    std::condition_variable_any changed_;
    unsigned count_ = 0;
    bool stopping_  = false;
};

struct job {
    uint64_t seq    = 0;
    uint32_t parts  = 0; /**< not ended; 0 means that the job has ended */
    uint32_t status = shim::cs_completed;
};

class job_table {
public:
    using clock = std::chrono::steady_clock;

    /** @param completed  Told of every job that completes.
     *  @param watch      Model and log of the jobs; nullptr: neither. */
    job_table(hlthunk_emu_counters &counters, completed_jobs &completed,
              const char *name, std::unique_ptr<job_watch> watch)
        : counters_(counters), completed_(completed), name_(name),
          watch_(std::move(watch))
    {}

    job &slot_of(uint64_t seq) { return slots_[seq % shim::max_cs_in_flight]; }

    /** Whether a number has not been given yet. */
    [[nodiscard]] bool is_future(uint64_t seq) const { return seq >= next_; }

    /** Whether a job has not ended. */
    bool is_under_way(uint64_t seq)
    {
        const job &asked = slot_of(seq);
        return (asked.seq == seq) && (asked.parts > 0);
    }

    /** Whether the next job's slot is taken. */
    bool is_full() { return slot_of(next_).parts > 0; }

    /** Give the next number, and its slot. */
    uint64_t take_number();

    /** @param queue  Of its first part.
     *  @param fate   What the job is to meet with; nullptr: nothing. */
    void begin(uint64_t seq, uint32_t queue, uint32_t parts,
               const fault_effect *fate);

    void end_part(job &owner);

    void abort(job &owner);

    /** As queue_manager. */
    void hold(uint64_t seq, clock::time_point until, bool lost = false);
    void break_down(const fault_effect &why);
    [[nodiscard]] const std::optional<fault_effect> &breakdown() const
    {
        return breakdown_;
    }

    /** No thread waits for the end of a hold: whoever asks for a job looks. */
    void end_holds()
    {
        if (!held_.empty()) {
            end_holds_until(clock::now());
        }
    }

    /** When a thread runs again that sleeps until a job ends; the clock's
     *  epoch: at once. */
    clock::time_point awake_after(uint64_t seq);

    /** Sleep until something changes or a hold ends. */
    void sleep(card_lock &lock, clock::time_point deadline);

    [[nodiscard]] sleepers &waiting() { return waiting_; }
    [[nodiscard]] const sleepers &waiting() const { return waiting_; }
    [[nodiscard]] job_watch *watch() const { return watch_.get(); }

    /** The card is closed: tell the watch of what is under way. */
    void abandon();

private:
    /* It counts as a part of the job. */
    struct held_job {
        uint64_t seq;
        clock::time_point until;
        bool lost;
    };

    held_job *find_held(uint64_t seq);
    void end_holds_until(clock::time_point now);
    bool is_over(held_job &held, clock::time_point now);
    void meet_fate(job &owner);

    hlthunk_emu_counters &counters_;
    completed_jobs &completed_;
    const char *const name_;
    const std::unique_ptr<job_watch> watch_;
    sleepers waiting_;
    job slots_[shim::max_cs_in_flight];
    uint64_t next_ = 1;
    std::vector<held_job> held_;
    /* What jobs are to meet with at their end, by number. */
    std::vector<std::pair<uint64_t, fault_effect>> fates_;
    std::optional<fault_effect> breakdown_;
};

inline uint64_t job_table::take_number()
{
    slot_of(next_) = {.seq = next_};
    return next_++;
}

inline void job_table::end_part(job &owner)
{
    if (--owner.parts > 0) {
        return;
    }
    if (!fates_.empty()) {
        meet_fate(owner);
    }
    if (watch_ != nullptr) {
        watch_->end_job(owner.seq, owner.status);
    }
    if (owner.status == shim::cs_completed) {
        completed_.add(owner.seq);
    }
    waiting_.wake();
}

} // namespace gaudi::emu
