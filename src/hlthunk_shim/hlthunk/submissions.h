/**
 * The jobs that one card was given.
 *
 * Counts those in flight: they go to the driver one at a time, as it takes them
 * one at a time anyway. Their sequence numbers are the tickets. Any thread.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "util/locks.h"

#include <atomic>
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
                             ticket &ticket_p);

    /** Forget a job that has ended. Every job needs this once.
     *
     *  @param result  What @ref query said of it, not 0. */
    void retire(ticket of, int result);

    /** As card::query and card::blocking_ticket. */
    [[nodiscard]] int query(ticket of, uint32_t timeout_us);
    [[nodiscard]] ticket blocking_ticket();

private:
    /* A place in the driver's ring, by sequence number. */
    struct place {
        std::atomic<uint64_t> holder{0}; /* 0 for none known to run */
        std::atomic<uint64_t> done{0};   /* the last that its owner saw done */
    };

    int ask_driver(uint64_t seq, uint32_t timeout_us);
    int note_silence(int error);
    uint64_t vacate(place &at);
    int keep_failure(uint64_t seq, int result);

    card &card_;
    const library &lib_;
    util::brief_lock submit_lock_; /* outside failed_lock_ */
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
    std::atomic<unsigned> failed_count_{0};
    std::mutex failed_lock_;
    std::map<uint64_t, int> failed_;
};

} // namespace gaudi::shim
