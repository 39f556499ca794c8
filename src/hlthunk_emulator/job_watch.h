/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What goes with the jobs of an open card beside their bytes: the timing model
 * and the log of jobs. Made when a card opens and one of them is on; without it
 * its queues ask a single pointer.
 *
 * The log is the file that HLTHUNK_EMU_LOG_JOBS names. A job is a line, which
 * is written when the job ends, by one write(2) to the end of the file: so
 * processes can share it.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/copy_route.h"
#include "hlthunk_shim/abi/hlthunk.h"
#include "util/unique_fd.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace gaudi::emu {

class job_watch {
public:
    using clock = std::chrono::steady_clock;

    /** @return nullptr when neither model nor log is on.
     *  @throws bad_alloc. */
    static std::unique_ptr<job_watch> create(unsigned card);

    /** A job is submitted. @param queue  Of its first command buffer. */
    void submitted(uint64_t seq, uint32_t queue)
    {
        of(seq) = {.submitted = clock::now(), .queue = queue};
    }

    /** A queue begins with a copy.
     *  @return When its job ends at the earliest; none: at any time. */
    std::optional<clock::time_point> begin(uint64_t seq,
                                           const engine_copy &copy);

    /** It has ended. @param left  Bytes that were not copied. */
    void end(uint64_t seq, uint64_t left) { of(seq).bytes -= left; }

    /** When a job ends in the model, as far as is known now. */
    [[nodiscard]] clock::time_point end_of(uint64_t seq) const;

    /** When a thread runs again that slept until a job ended; the clock's
     *  epoch: at once. */
    [[nodiscard]] clock::time_point awake_after(clock::time_point end) const;

    /** A job that the model knows of has ended there, too. */
    void leave_model(uint64_t seq);

    /** A job has ended. @param status  cs_status. */
    void end_job(uint64_t seq, uint32_t status);

    /** The card is closed while a job is under way. */
    void abandon_job(uint64_t seq, uint32_t status);

private:
    struct job {
        clock::time_point submitted;
        model_time ended      = 0; /* in the model; 0: unknown */
        uint32_t queue        = 0;
        const char *direction = nullptr; /* nullptr: no copy has begun */
        uint64_t bytes        = 0;
    };

    job_watch(box_traffic *model, util::unique_fd log, unsigned card)
        : model_(model), log_(std::move(log)), card_(card)
    {}

    job &of(uint64_t seq) { return jobs_[seq % shim::max_cs_in_flight]; }
    void write(uint64_t seq, const char *outcome);

    box_traffic *const model_; /* nullptr: jobs take as long as they do here */
    util::unique_fd log_;      /* none: jobs are not logged */
    const unsigned card_;      /* index */
    job jobs_[shim::max_cs_in_flight];
};

} // namespace gaudi::emu
