/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The jobs that one card was given.
 *
 * Counts those in flight: they go to the driver one at a time, as it takes them
 * one at a time anyway. Their sequence numbers are the tickets. Any thread.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

namespace gaudi::shim {

class submissions {
public:
    /** Both must outlive it. */
    submissions(card &to, const library &lib) : card_(to), lib_(lib) {}

    [[nodiscard]] card &to() const { return card_; }

    /**
     * Submit command buffers of one queue as one job.
     *
     * @return 0; -EAGAIN when the driver's limit of jobs in flight is reached
     *         (the driver is not called then, it would spin), see
     *         @ref blocking_ticket; else -errno.
     */
    [[nodiscard]] int submit(hl_cs_chunk *chunks, uint32_t count,
                             ticket &ticket_p)
    {
        /* Held until the number is noted. Other threads could otherwise go once
         * around the driver's ring meanwhile, and it would forget the job
         * before anybody here knows of it. No spin lock: the library tries
         * again for as long as a card is in reset. */
        const std::lock_guard<std::mutex> guard(submit_lock_);
        if (card_.is_lost()) {
            return -ENODEV;
        }
        const uint64_t next = last_seq_.load(std::memory_order_relaxed) + 1;
        if (((refused_.load(std::memory_order_relaxed) != 0) ||
             !place_of(next).is_free()) &&
            (blocking_ticket() != ticket::none)) {
            return -EAGAIN;
        }

        hlthunk_cs_in in{};
        hlthunk_cs_out out{};
        in.chunks_execute     = chunks;
        in.num_chunks_execute = count;

        const int ret = lib_.judge(
            card_, lib_.hlthunk_command_submission(card_.fd(), &in, &out));
        if (ret != 0) {
            ++refused_;
            return ret;
        }

        /* Written under the lock alone, but for places that become free. */
        place_of(out.seq).holder.store(out.seq, std::memory_order_release);
        last_seq_.store(out.seq, std::memory_order_release);
        if (refused_.load(std::memory_order_relaxed) != 0) {
            refused_.store(0, std::memory_order_release);
        }
        ticket_p = ticket{out.seq};
        return 0;
    }

    /** The same as @ref query, for the owner of a job, who forgets it when it
     *  has ended. Every job needs this once. */
    [[nodiscard]] int collect(ticket of, uint32_t timeout_us)
    {
        const auto seq   = static_cast<uint64_t>(of);
        const int result = (failed_count_.load(std::memory_order_acquire) == 0)
                               ? ask_driver(seq, timeout_us)
                               : query(of, timeout_us);
        if (result == 0) {
            return 0;
        }
        if (result == 1) {
            /* Until they see this, others may ask the driver about it; they
             * enter it only if the card is lost by then. */
            place_of(seq).done.store(seq, std::memory_order_release);
            if (failed_count_.load() == 0) {
                return 1;
            }
        }
        return forget(seq, result);
    }

    /** As card::query and card::blocking_ticket. */
    [[nodiscard]] int query(ticket of, uint32_t timeout_us);
    [[nodiscard]] ticket blocking_ticket();

private:
    /* A place in the driver's ring, by sequence number. */
    struct place {
        std::atomic<uint64_t> holder{0}; /* 0 for none known to run */
        std::atomic<uint64_t> done{0};   /* the last that its owner saw done */

        [[nodiscard]] bool is_free() const
        {
            const uint64_t now = holder.load(std::memory_order_acquire);
            return (now == 0) || (now == done.load(std::memory_order_acquire));
        }
    };

    place &place_of(uint64_t seq) { return places_[seq % max_cs_in_flight]; }

    int ask_driver(uint64_t seq, uint32_t timeout_us)
    {
        if (card_.is_closed()) {
            return -ENODEV;
        }
        uint32_t status = cs_busy;
        const int ret =
            lib_.hlthunk_wait_for_cs(card_.fd(), seq, timeout_us, &status);
        return ((ret >= 0) && (status == cs_completed) &&
                (silent_since_.load(std::memory_order_relaxed) == 0))
                   ? 1
                   : judge_answer(ret, status);
    }

    int judge_answer(int answer, uint32_t status);
    int forget(uint64_t seq, int result);
    int note_silence(int error);
    uint64_t vacate(place &at);
    int keep_failure(uint64_t seq, int result);

    card &card_;
    const library &lib_;
    std::mutex submit_lock_; /* outside failed_lock_ */
    std::atomic<uint64_t> last_seq_{0};
    std::atomic<uint32_t> refused_{0}; /* since the last job */
    /* When the driver began not to tell how jobs are, by the steady clock;
     * 0: it tells. */
    std::atomic<int64_t> silent_since_{0};
    /* The driver's own ring, and its rule for "full": a job has the place of
     * the six low bits of its number. */
    place places_[max_cs_in_flight];
    /* Jobs that failed and were not collected yet: the driver calls a job
     * completed once 64 newer ones exist, and says nothing of it when the card
     * is lost. */
    std::atomic<size_t> failed_count_{0};
    std::mutex failed_lock_;
    std::map<uint64_t, int> failed_;
};

} // namespace gaudi::shim
