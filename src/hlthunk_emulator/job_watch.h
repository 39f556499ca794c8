/**
 * What goes with the jobs of an open card beside their bytes: the timing model
 * and the trace. Made when a card opens and one of them is on; without it its
 * queues ask a single pointer.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/job_trace.h"
#include "hlthunk_shim/hlthunk/abi.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace gaudi::emu {

class job_watch {
public:
    using clock = std::chrono::steady_clock;

    /** @return nullptr when neither model nor trace is on.
     *  @throws bad_alloc. */
    static std::unique_ptr<job_watch> create(unsigned card);

    /** A job has got its number. */
    void submitted(uint64_t seq) { submitted_of(seq) = clock::now(); }

    /** A queue begins with a copy.
     *  @return When its job ends at the earliest; none: at any time. */
    std::optional<clock::time_point> begin(uint64_t seq,
                                           const engine_copy &copy);

    /** It has ended. @param left  Bytes that were not copied. */
    void end(uint64_t seq, uint32_t queue, uint64_t left);

    /** When a job ends in the model, as far as is known now. */
    [[nodiscard]] clock::time_point end_of(uint64_t seq) const;

    /** When a thread runs again that slept until a job ended; the clock's
     *  epoch: at once. */
    [[nodiscard]] clock::time_point awake_after(clock::time_point end) const;

    /** A job that the model knows of has ended there, too. */
    void leave_model(uint64_t seq);

    /** A job has ended. @param status  cs_status. */
    void end_job(uint64_t seq, uint32_t status);

    void tell_fault(uint64_t seq, uint32_t queue, const char *why);

    /** The card is closed while a job is under way. */
    void abandon_job(uint64_t seq, uint32_t status);

    /** Have it all written. */
    void flush();

private:
    job_watch(box_traffic *model, trace_file *trace, unsigned card);

    clock::time_point &submitted_of(uint64_t seq)
    {
        return submitted_[seq % shim::max_cs_in_flight];
    }
    void trace_times(uint64_t seq);
    void trace_end(uint64_t seq, const char *how);

    box_traffic *const model_; /* nullptr: jobs take as long as they do here */
    std::optional<job_trace> trace_;
    const unsigned card_; /* index */
    clock::time_point submitted_[shim::max_cs_in_flight];
};

} // namespace gaudi::emu
