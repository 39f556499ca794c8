/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The queues of one card: takes submissions, makes their copies, knows how each
 * job ended.
 *
 * Work is done by whoever calls: the submitter for small jobs, the waiter and
 * the engine threads for the rest, a piece at a time. All entry points take the
 * card's lock, held; it is released while one thread copies a large piece.
 * Packets of one queue run in order.
 */
#pragma once

#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/job_table.h"
#include "hlthunk_emulator/packet_reader.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace gaudi::emu {

class queue_manager {
public:
    /** @param completed  Told of every job that completes.
     *  @param card       Index of the card, and
     *  @param name       its name.
     *  @param watch      Model and log of the jobs; nullptr: neither. */
    queue_manager(const mmu &table, hlthunk_emu_counters &counters,
                  completed_jobs &completed, const char *name,
                  unsigned card = 0, std::unique_ptr<job_watch> watch = {});

    /** Whether as many jobs as the card takes are under way. */
    bool is_full()
    {
        jobs_.end_holds();
        return jobs_.is_full();
    }

    /** The next job's number; not while @ref is_full. */
    uint64_t take_number() { return jobs_.take_number(); }

    /** Begin the job of this number.
     *  @param fate  What it is to meet with; nullptr: nothing. */
    void begin(uint64_t seq, const hl_cs_chunk *chunks, uint32_t count,
               const fault_effect *fate);

    /** As hlthunk_emu_copy, and -EAGAIN while @ref is_full. */
    int copy(const copy_request &wanted, unsigned engine, uint64_t &seq_p,
             const fault_effect *fate = nullptr);

    /** Wait until there is room for a job.
     *  @return 0, -ENODEV when the card is closed, or -EBUSY when it is broken
     *          down. */
    int wait_for_room(card_lock &lock);

    /** As the driver's wait for a submission; for a card that has not broken
     *  down, or does so meanwhile. */
    int wait(card_lock &lock, uint64_t seq, uint64_t timeout_us,
             driver::wait_out &out);

    /** Copy one piece. @return false when there is none to copy now. */
    bool run_piece(card_lock &lock);

    void pause(bool paused);

    using clock = std::chrono::steady_clock;

    /**
     * Keep a job from ending before a time, though its bytes have been moved:
     * until then it is busy, and its slot taken. An aborted job is not kept.
     *
     * @param seq    A job that has not ended.
     * @param until  time_point::max(): as long as the card is open. Of several
     *               times the latest holds.
     */
    void hold(uint64_t seq, clock::time_point until) { jobs_.hold(seq, until); }

    /**
     * End all jobs as aborted, and run none any more: the card is reset, or
     * removed. A bad packet leads to a reset, as the driver makes it when an
     * engine reports an error; so does a job that runs for too long.
     */
    void break_down(const fault_effect &why) { jobs_.break_down(why); }

    /** How that came. */
    [[nodiscard]] const std::optional<fault_effect> &breakdown() const
    {
        return jobs_.breakdown();
    }

    /** Whether there will be nothing to do before the next submission. */
    [[nodiscard]] bool is_idle() const
    {
        return paused_ || is_over() || active_.empty();
    }

    /** Let the copy that is being made end; start no more. */
    void stop(card_lock &lock);

    /**
     * Have a job move no more bytes that the driver has just called ended: with
     * these errors it says so of a job behind which its engine was stopped
     * (hl_device_reset and cs_timedout of the vendor's driver). Its owner may
     * give its memory back at once.
     *
     * @param error  What the wait for it has answered.
     */
    void end_unfinished(card_lock &lock, uint64_t seq, int error);

    /** Wait until no copy is being made, so that a mapping may go. */
    void quiesce(card_lock &lock);

private:
    /* One command buffer of a job, in its queue. */
    struct part {
        uint64_t seq;
        uint32_t queue;
        command_buffer_state commands{};
        copy_request copy{};  /* what is left of it */
        bool watched = false; /* the watch knows of the copy */
    };

    struct piece {
        char *dst;
        const char *src;
        uint64_t size;
        memory_side to;
        memory_side from;
    };

    [[nodiscard]] bool is_over() const
    {
        return jobs_.waiting().are_stopped() || breakdown();
    }

    void enter(const part &added);
    void run_or_enter(part &only);
    bool run_unqueued(part &only);
    void run_inline();

    part *find_piece(uint64_t max_bytes, bool whole, piece &work);
    void finish(part &current, const piece &work, bool copied);
    bool advance(part &current);
    inline bool prepare(part &current, uint64_t max_bytes, piece &work);
    void watch_copy(part &current, const translation &from,
                    const translation &to);
    inline void count_copy(part &current, const piece &work, bool copied);

    void end_watched_copy(part &current);
    void end_part(part &ended);
    void end_first_part(uint32_t queue);

    [[gnu::format(printf, 3, 4)]] void fault(const part &current,
                                             const char *format, ...);

    const mmu &table_;
    hlthunk_emu_counters &counters_;
    const char *const name_;
    const unsigned card_;
    job_table jobs_;
    job_watch *const watch_; /* nullptr: none */
    packet_reader packets_;
    std::vector<std::deque<part>> queues_;
    std::vector<uint32_t> active_; /* queues that have parts */
    bool is_copying_ = false;      /* without the lock */
    bool paused_     = false;
};

} // namespace gaudi::emu
