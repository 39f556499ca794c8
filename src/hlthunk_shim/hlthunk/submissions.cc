/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/hlthunk/submissions.h"

#include "util/warning.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gaudi::shim {

/* Make a place free if its job has ended, whoever owns the job: an owner that
 * does not poll must not keep others from submitting. Gives the job that still
 * runs, else 0. */
uint64_t submissions::vacate(place &at)
{
    uint64_t holder = at.holder.load(std::memory_order_acquire);
    if ((holder == 0) || (holder == at.done.load(std::memory_order_acquire))) {
        return 0;
    }
    const int result = ask_driver(holder, 0);
    if (result == 0) {
        return holder;
    }
    if (result == 1) {
        at.holder.compare_exchange_strong(holder, 0);
        return 0;
    }
    /* Entered before the place is given up: an owner that finds its place gone
     * looks for the entry. If it was faster, nobody will. */
    const uint64_t seq = holder;
    std::lock_guard<std::mutex> guard(failed_lock_);
    const bool entered = failed_.emplace(seq, result).second;
    failed_count_.store(failed_.size());
    if (!at.holder.compare_exchange_strong(holder, 0) && entered) {
        failed_.erase(seq);
        failed_count_.store(failed_.size());
    }
    return 0;
}

ticket submissions::blocking_ticket()
{
    const uint64_t next = last_seq_.load(std::memory_order_acquire) + 1;
    /* Each refused submission may have used up a number. */
    const uint64_t last =
        next + std::min(refused_.load(), max_cs_in_flight - 1);
    for (uint64_t seq = next; seq <= last; ++seq) {
        const uint64_t holder = vacate(place_of(seq));
        if (holder != 0) {
            return ticket{holder};
        }
    }
    return ticket::none;
}

/* That a question failed says nothing of the job: its memory may still be
 * written. The driver ends no job without resetting the card, so that whoever
 * gets no answer for long has lost it. */
int submissions::note_silence(int error)
{
    constexpr std::chrono::seconds longest{10};
    using clock      = std::chrono::steady_clock;
    const auto now   = clock::now().time_since_epoch().count();
    int64_t since    = 0;
    const bool first = silent_since_.compare_exchange_strong(since, now);
    if (first) {
        util::warn("card %s does not tell how its jobs are (%s): it is asked "
                   "again for %d s",
                   card_.bus_id().c_str(), std::strerror(-error),
                   static_cast<int>(longest.count()));
    } else if (clock::duration(now - since) > longest) {
        tell_loss(card_, "given up");
        return -ENODEV;
    }
    return 0;
}

/* What an answer about a job means. @return As @ref query. */
int submissions::judge_answer(int answer, uint32_t status)
{
    const int ret = lib_.judge(card_, answer);
    if ((ret == -ENODEV) || (ret == -EIO) || (ret == -ETIMEDOUT)) {
        return ret;
    }
    if (ret < 0) {
        return note_silence(ret);
    }
    if (silent_since_.load(std::memory_order_relaxed) != 0) {
        silent_since_.store(0, std::memory_order_relaxed);
    }
    /* v1.10 gives 0 here, newer libraries the status once more (hlthunk.h of
     * either), so that only what they have written tells them apart. */
    switch (status) {
    case cs_completed:
        return 1;
    case cs_busy:
        return 0;
    case cs_timed_out:
        return lib_.judge(card_, -ETIMEDOUT);
    default:
        return lib_.judge(card_, -EIO);
    }
}

/* Note how a job failed, until its owner collects it: once the card is lost,
 * the driver has nothing more to say than that. Gives what was noted first. */
int submissions::keep_failure(uint64_t seq, int result)
{
    std::lock_guard<std::mutex> guard(failed_lock_);
    const place &own            = place_of(seq);
    const auto [entry, entered] = failed_.emplace(seq, result);
    const int kept              = entry->second;
    failed_count_.store(failed_.size());
    if (entered && ((own.holder.load() != seq) || (own.done.load() == seq))) {
        failed_.erase(entry); /* it was collected meanwhile */
        failed_count_.store(failed_.size());
    }
    return kept;
}

int submissions::query(ticket of, uint32_t timeout_us)
{
    const auto seq = static_cast<uint64_t>(of);
    if (failed_count_.load(std::memory_order_acquire) > 0) {
        std::lock_guard<std::mutex> guard(failed_lock_);
        auto found = failed_.find(seq);
        if (found != failed_.end()) {
            return found->second;
        }
    }
    const int result = ask_driver(seq, timeout_us);
    if (result < 0) {
        return keep_failure(seq, result);
    }
    if ((result == 1) && (failed_count_.load() > 0)) {
        /* It may have been forgotten between the two questions. */
        std::lock_guard<std::mutex> guard(failed_lock_);
        auto found = failed_.find(seq);
        return (found != failed_.end()) ? found->second : 1;
    }
    return result;
}

/* @return How it ended, as was noted first. */
int submissions::forget(uint64_t seq, int result)
{
    uint64_t holder = seq;
    place_of(seq).holder.compare_exchange_strong(holder, 0);
    if (failed_count_.load() > 0) {
        std::lock_guard<std::mutex> guard(failed_lock_);
        const auto found = failed_.find(seq);
        if (found != failed_.end()) {
            result = found->second;
            failed_.erase(found);
            failed_count_.store(failed_.size());
        }
    }
    return result;
}

} // namespace gaudi::shim
