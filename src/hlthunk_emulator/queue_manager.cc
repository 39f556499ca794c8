#include "hlthunk_emulator/queue_manager.h"

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/copy_engine.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace gaudi::emu {

namespace {

/* A job whose copies are this short runs inside its submission. */
constexpr uint64_t inline_bytes = 16384;
/* Copied at a time otherwise: long enough to hide the bookkeeping, short enough
 * that a poll stays a poll. */
constexpr uint64_t slice_bytes = 524288;
/* Longest time for which the kernel's timeout argument is honoured: the driver
 * keeps 32 bits of microseconds. */
constexpr uint64_t max_timeout_us = UINT32_MAX;

} // namespace

queue_manager::queue_manager(const mmu &table, hlthunk_emu_counters &counters,
                             completed_jobs &completed, const char *name,
                             const queue_timing &timing)
    : table_(table), counters_(counters), completed_(completed), name_(name),
      timing_(timing),
      trace_((timing.trace != nullptr)
                 ? std::make_unique<job_trace>(*timing.trace, timing.card)
                 : nullptr),
      queues_(queue_count + internal_queue_count), runs_(queues_.size())
{}

/* One command buffer less for a job. */
void queue_manager::end_part_of(part &ended)
{
    trace_end(ended);
    if (ended.unfenced && (engine_of(ended.queue) == engine_kind::edma)) {
        ++counters_.unfenced_buffers;
    }
    end_part_of(slot_of(ended.seq));
}

void queue_manager::end_part_of(job &owner)
{
    if (--owner.parts > 0) {
        return;
    }
    meet_fate(owner);
    trace_end_of_job(owner);
    if (owner.status == shim::cs_completed) {
        completed_.add(owner.seq);
    }
    if (waiters_ > 0) {
        changed_.notify_all();
    }
}

/* The first part of a queue has ended. */
void queue_manager::end_part(uint32_t queue)
{
    auto &parts = queues_[queue];
    part ended  = parts.front();

    parts.pop_front();
    if (parts.empty()) {
        active_.erase(std::find(active_.begin(), active_.end(), queue));
    }
    end_part_of(ended);
}

/* Run a job of one command buffer that has its queue to itself, without ever
 * entering it there. False when it is not short: then it has to be queued as it
 * is now. */
bool queue_manager::run_unqueued(part &only)
{
    slice work{};
    uint64_t budget = inline_bytes;

    if (paused_) {
        return false;
    }
    while (advance(only) != step::ended) {
        if (only.unclaimed > budget) {
            return false;
        }
        if (prepare(only, budget, work)) {
            copy_bytes(work.dst, work.src, work.size, work.large);
            budget -= work.size;
            count_copy(only, work);
        }
    }
    end_part_of(only);
    return true;
}

/* Find work. `whole`: only a copy that fits into max_bytes as a whole. */
queue_manager::part *queue_manager::claim(uint64_t max_bytes, bool whole,
                                          slice &work)
{
    if (paused_) {
        return nullptr;
    }
    for (size_t i = 0; (i < active_.size()) && !is_over();) {
        const uint32_t queue = active_[i];
        part &front          = queues_[queue].front();
        switch (advance(front)) {
        case step::ended:
            end_part(queue);
            continue; /* active_[i] may be another queue now */
        case step::nothing:
            ++i;
            break;
        case step::copy:
            if (whole && (front.unclaimed > max_bytes)) {
                ++i;
                break;
            }
            if (prepare(front, max_bytes, work)) {
                /* The other queues' turn next. */
                std::rotate(active_.begin() + static_cast<ptrdiff_t>(i),
                            active_.begin() + static_cast<ptrdiff_t>(i) + 1,
                            active_.end());
                return &front;
            }
            break; /* aborted: ends in the next round */
        }
    }
    return nullptr;
}

/* Bytes of a part are where they belong. */
void queue_manager::count_copy(part &current, const slice &work)
{
    const bool from_host = (work.from == memory_kind::host);
    const bool to_host   = (work.to == memory_kind::host);
    uint64_t &counter    = from_host
                               ? (to_host ? counters_.host_to_host_bytes
                                          : counters_.host_to_device_bytes)
                               : (to_host ? counters_.device_to_host_bytes
                                          : counters_.device_to_device_bytes);
    counter += work.size;
    current.claimed -= work.size;
    if ((current.claimed == 0) && (current.unclaimed == 0)) {
        trace_end(current);
    }
}

void queue_manager::finish(part &current, const slice &work)
{
    count_copy(current, work);
    if ((current.claimed == 0) && (current.unclaimed == 0)) {
        const uint32_t queue = current.queue;
        if (advance(current) == step::ended) {
            end_part(queue);
        }
    }
}

void queue_manager::run_inline()
{
    slice work{};
    uint64_t budget = inline_bytes;

    while (part *current = claim(budget, true, work)) {
        copy_bytes(work.dst, work.src, work.size, work.large);
        budget -= work.size;
        finish(*current, work);
    }
}

bool queue_manager::run_slice(card_lock &lock)
{
    slice work{};
    part *current = claim(slice_bytes, false, work);
    if (current == nullptr) {
        return false;
    }
    if (work.size <= inline_bytes) {
        copy_bytes(work.dst, work.src, work.size, work.large);
    } else {
        ++copying_;
        lock.unlock();
        copy_bytes(work.dst, work.src, work.size, work.large);
        lock.lock();
        --copying_;
        if ((copying_ == 0) && ((waiters_ > 0) || stopped_)) {
            changed_.notify_all();
        }
    }
    finish(*current, work);
    return true;
}

bool queue_manager::is_idle() const
{
    return paused_ || is_over() || active_.empty();
}

bool queue_manager::has_work() const
{
    if (paused_ || is_over()) {
        return false;
    }
    return std::any_of(active_.begin(), active_.end(), [this](uint32_t queue) {
        const part &front = queues_[queue].front();
        return (front.unclaimed > 0) || (front.claimed == 0);
    });
}

void queue_manager::pause(bool paused)
{
    paused_ = paused;
    if (waiters_ > 0) {
        changed_.notify_all();
    }
}

void queue_manager::hold(uint64_t seq, clock::time_point until)
{
    job &held = slot_of(seq);

    if (held.held_until == clock::time_point{}) {
        held_.push_back(seq);
        ++held.parts;
    }
    held.held_until = std::max(held.held_until, until);
    if (waiters_ > 0) {
        changed_.notify_all(); /* who sleeps wakes up in time for it */
    }
}

/* No thread waits for the time to come: whoever asks for a job looks. */
void queue_manager::end_holds()
{
    if (held_.empty()) {
        return;
    }
    const clock::time_point now = clock::now();
    std::erase_if(held_, [&](uint64_t seq) {
        job &held = slot_of(seq);
        const bool over =
            (held.status == shim::cs_aborted) ||
            ((held.held_until <= now) && is_over_in_model(held, now));
        if (!over) {
            return false;
        }
        if ((held.lost_until != clock::time_point{}) &&
            (held.status == shim::cs_completed)) {
            log("%s: job %lu runs for too long", name_, seq);
            held.status = shim::cs_timed_out;
            ++counters_.jobs_aborted;
            break_down({.kind = fault_kind::reset});
        }
        if (timing_.model != nullptr) {
            trace_times(seq);
            timing_.model->forget(timing_.card, seq);
        }
        held.held_until = {};
        end_part_of(held);
        return true;
    });
}

/* Every sleep goes through here: a card that closes has to know who still is
 * inside, and the last one out tells it. */
void queue_manager::sleep(card_lock &lock, clock::time_point deadline)
{
    for (const uint64_t seq : held_) {
        deadline = std::min(deadline, slot_of(seq).held_until);
    }
    ++waiters_;
    if (deadline == clock::time_point::max()) {
        changed_.wait(lock);
    } else {
        changed_.wait_until(lock, deadline);
    }
    --waiters_;
    if (stopped_) {
        changed_.notify_all();
    }
}

void queue_manager::quiesce(card_lock &lock)
{
    while (copying_ > 0) {
        sleep(lock, clock::time_point::max());
    }
}

void queue_manager::stop(card_lock &lock)
{
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return (copying_ == 0) && (waiters_ == 0); });
    trace_what_is_left();
}

int queue_manager::wait(card_lock &lock, uint64_t seq, uint64_t timeout_us,
                        uint32_t &status_p)
{
    status_p = shim::cs_completed;
    if (seq >= next_seq_) {
        return -EINVAL;
    }
    if ((seq == 0) || (slot_of(seq).seq != seq)) {
        return 0; /* long gone */
    }

    clock::time_point deadline;
    clock::time_point awake{};
    for (bool first = true;; first = false) {
        end_holds();
        const job &asked = slot_of(seq);
        if (asked.seq != seq) {
            return 0;
        }
        if (asked.status == shim::cs_timed_out) {
            status_p = asked.status;
            return -ETIMEDOUT;
        }
        if (asked.parts == 0) {
            status_p = asked.status;
            while ((clock::time_point{} < awake) && !stopped_ &&
                   (clock::now() < awake)) {
                sleep(lock, awake);
            }
            return (status_p == shim::cs_aborted) ? -EIO : 0;
        }
        if (is_over()) {
            status_p = shim::cs_aborted;
            return -EIO;
        }
        if (first) {
            deadline = (timeout_us == 0)
                           ? clock::time_point::min()
                           : clock::now() + std::chrono::microseconds(std::min(
                                                timeout_us, max_timeout_us));
        } else if ((timeout_us == 0) || (clock::now() >= deadline)) {
            status_p = shim::cs_busy;
            return 0;
        }
        /* Looking for work may itself have ended the job. */
        if (!run_slice(lock) && (timeout_us != 0) && !is_over() &&
            (slot_of(seq).seq == seq) && (slot_of(seq).parts > 0)) {
            awake = awake_after(slot_of(seq));
            sleep(lock, deadline);
        }
    }
}

} // namespace gaudi::emu
