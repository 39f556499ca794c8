/**
 * The queues of one card: takes submissions, runs their packets, knows how each
 * job ended.
 *
 * Work is done by whoever calls: the submitter for small jobs, the waiter and
 * the engine threads for the rest, a slice at a time. All entry points take the
 * card's lock, held; it is released while a large slice is copied, so several
 * threads may copy for one packet. Packets of one queue run in order.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/fault_text.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/job_trace.h"
#include "hlthunk_emulator/mmu.h"
#include "hlthunk_shim/hlthunk/abi.h"
#include "util/locks.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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

class box_traffic;

/** How long the jobs of a card take, and who is told. */
struct queue_timing {
    box_traffic *model = nullptr; /**< nullptr: as long as this machine does */
    unsigned card      = 0;       /**< its index */
    trace_file *trace  = nullptr; /**< nullptr: nobody */
};

class queue_manager {
public:
    /** @param completed  Told of every job that completes.
     *  @param of         Which card it is, and how fast. */
    queue_manager(const mmu &table, hlthunk_emu_counters &counters,
                  completed_jobs &completed, const char *name,
                  const queue_timing &timing = {});

    /** As hlthunk_command_submission.
     *  @param fate  What the job is to meet with. */
    int submit(card_lock &lock, const hlthunk_cs_in &in, uint64_t &seq_p,
               const fault_effect &fate = {});

    /** As hlthunk_emu_copy. */
    int copy(card_lock &lock, uint64_t dst, uint64_t src, uint64_t size,
             unsigned engine, uint64_t &seq_p, const fault_effect &fate = {});

    /** As hlthunk_wait_for_cs; for a card that has not broken down, or does so
     *  meanwhile. */
    int wait(card_lock &lock, uint64_t seq, uint64_t timeout_us,
             uint32_t &status_p);

    /** Do one slice of work. @return false when there is none to do now. */
    bool run_slice(card_lock &lock);

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
    void hold(uint64_t seq, clock::time_point until);

    /**
     * End all jobs as aborted, and run none any more: the card is reset, or
     * removed. A bad packet leads to a reset, as the driver makes it when an
     * engine reports an error; so does a job that runs for too long.
     */
    void break_down(const fault_effect &why);

    /** How that came. */
    [[nodiscard]] const std::optional<fault_effect> &breakdown() const
    {
        return breakdown_;
    }

    /** Whether run_slice would find something. */
    [[nodiscard]] bool has_work() const;

    /** Whether there will be nothing to do before the next submission. */
    [[nodiscard]] bool is_idle() const;

    /** Let copies that are being made end; start no more. */
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
    struct packet_stream {
        uint64_t va   = 0;
        uint32_t size = 0;
        uint32_t next = 0; /* offset of the next packet */
    };

    /* One command buffer of a job, in its queue. */
    struct part {
        uint64_t seq;
        uint32_t queue;
        packet_stream upper;
        packet_stream lower; /* what CP_DMA of an internal engine points at */
        uint64_t src       = 0; /* the copy under way */
        uint64_t dst       = 0;
        uint64_t unclaimed = 0;     /* bytes that nobody copies yet */
        uint64_t claimed   = 0;     /* bytes being copied */
        bool large         = false; /* see copy_bytes */
        bool unfenced      = false; /* no barrier behind the last copy */
        bool modelled      = false; /* the timing model knows of the copy */
        bool traced        = false; /* and so does the trace */
    };

    /* Copies of a queue that followed each other without a gap. */
    struct copy_run {
        uint64_t src   = 0; /* where the next one would begin */
        uint64_t dst   = 0;
        uint64_t bytes = 0;
    };

    struct job {
        uint64_t seq    = 0;
        uint32_t parts  = 0; /* not ended; 0 means that the job has ended */
        uint32_t status = shim::cs_completed;
        clock::time_point held_until{}; /* a hold is a part, too */
        clock::time_point submitted{};  /* with a model or a trace */
        clock::time_point lost_until{}; /* of a job that will not end */
        fault_effect fate{};
    };

    enum class step { copy, nothing, ended };

    struct slice {
        char *dst;
        const char *src;
        uint64_t size;
        memory_kind to;
        memory_kind from;
        bool large;
    };

    static constexpr uint64_t slots = shim::max_cs_in_flight;

    job &slot_of(uint64_t seq) { return jobs_[seq % slots]; }
    int validate(const hlthunk_cs_in &in) const;
    int look_at_flags(uint32_t flags) const;
    int take_number(card_lock &lock);
    bool enter(part added, bool alone);
    void begin_copy(part &current, uint64_t dst, uint64_t src, uint64_t size);
    part *claim(uint64_t max_bytes, bool whole, slice &work);
    step advance(part &current);
    bool fetch(part &current, const packet_stream &stream,
               const translation &rest, void *packet, uint32_t size);
    bool take_lin_dma(part &current, packet_stream &stream,
                      const translation &rest);
    bool take_cp_dma(part &current, packet_stream &stream,
                     const translation &rest);
    void decode(part &current, packet_stream &stream);
    bool prepare(part &current, uint64_t max_bytes, slice &work);
    [[gnu::format(printf, 3, 4)]] void fault(const part &current,
                                             const char *format, ...);
    void count_copy(part &current, const slice &work);
    void finish(part &current, const slice &work);
    void end_part_of(part &ended);
    void end_part_of(job &owner);
    void begin_job(uint64_t seq, uint32_t parts, const fault_effect &fate);
    void abort(job &owner);
    void meet_fate(job &owner);
    [[nodiscard]] bool is_over() const { return stopped_ || breakdown_; }
    void end_holds();
    void model_copy(part &current, const translation &from,
                    const translation &to);
    bool is_over_in_model(job &held, clock::time_point now);
    clock::time_point awake_after(const job &slept_for) const;
    void end_part(uint32_t queue);
    void trace_begin(part &current, const translation &from,
                     const translation &to);
    void trace_end(part &current);
    void trace_times(uint64_t seq);
    void trace_end_of_job(const job &ended);
    void trace_fault(const part &current, const char *why);
    void trace_what_is_left();
    bool run_unqueued(part &only);
    void run_inline();
    void sleep(card_lock &lock, clock::time_point deadline);

    const mmu &table_;
    hlthunk_emu_counters &counters_;
    completed_jobs &completed_;
    const char *const name_;
    const queue_timing timing_;
    const std::unique_ptr<job_trace> trace_; /* nullptr: none */
    job jobs_[slots];
    uint64_t next_seq_ = 1;
    std::vector<std::deque<part>> queues_;
    std::vector<copy_run> runs_;   /* by queue */
    std::vector<uint32_t> active_; /* queues that have parts */
    std::vector<uint64_t> held_;   /* jobs */
    unsigned copying_ = 0;         /* slices being copied without the lock */
    bool paused_      = false;
    bool stopped_     = false;
    std::optional<fault_effect> breakdown_;
    unsigned waiters_ = 0;
    std::condition_variable_any changed_;
};

} // namespace gaudi::emu
