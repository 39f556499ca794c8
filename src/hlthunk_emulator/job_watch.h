/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What goes with the jobs of an open card beside their bytes: the timing model
 * and the trace. Made when a card opens and one of them is on; without it its
 * queues ask a single pointer.
 *
 * The trace has a slice per copy in the row of its queue, and one in the row of
 * each link that the bytes went through. A copy is told when its job ends,
 * since only then it is known how that ended and, with a timing model, when the
 * copy was made in it. Copies of one queue follow each other, so slices of a
 * row do not overlap; what goes through a link at the same time are
 * asynchronous events, which may.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/copy_route.h"
#include "hlthunk_emulator/trace_rows.h"
#include "hlthunk_shim/hlthunk/abi.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::emu {

class job_watch {
public:
    using clock = std::chrono::steady_clock;

    /** @return nullptr when neither model nor trace is on.
     *  @throws bad_alloc. */
    static std::unique_ptr<job_watch> create(unsigned card);

    /** A job has got its number. */
    void submitted(uint64_t seq) { of(seq).submitted = clock::now(); }

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

    /** A job is aborted, and why. */
    void tell_fault(uint64_t seq, uint32_t queue, const char *why);

    /** The card is closed while a job is under way. */
    void abandon_job(uint64_t seq, uint32_t status);

    /** Have it all written. */
    void flush();

private:
    struct known_copy {
        engine_copy what;
        model_time begin;
        model_time end; /* 0 while it is under way */
        uint64_t left;
        bool modelled; /* the times are the model's */
    };

    struct job {
        clock::time_point submitted;
        std::vector<known_copy> copies;
    };

    job_watch(box_traffic *model, trace_file *trace, unsigned card)
        : model_(model), rows_(trace, card), card_(card)
    {}

    job &of(uint64_t seq) { return jobs_[seq % shim::max_cs_in_flight]; }
    void take_times(uint64_t seq);
    void write(uint64_t seq, const char *status);

    std::string row_of(uint32_t queue);
    void add_link(const known_copy &copy, uint64_t seq, unsigned card,
                  bool to_card);
    void add_links(const known_copy &copy, uint64_t seq);
    void add_slice(const known_copy &copy, uint64_t seq, const char *status);

    box_traffic *const model_; /* nullptr: jobs take as long as they do here */
    trace_rows rows_;
    const unsigned card_; /* index */
    job jobs_[shim::max_cs_in_flight];
};

} // namespace gaudi::emu
