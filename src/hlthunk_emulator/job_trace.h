/**
 * What the jobs of an open card did, for the trace: a slice per copy in the row
 * of its queue, and one in the row of each link that the bytes went through.
 *
 * A copy is told when it ends, with its job, since only then it is known how
 * the job ended and, with a timing model, when the copy was made in that.
 * Copies of one queue follow each other, so slices of a row do not overlap;
 * what goes through a link at the same time are asynchronous events, which may.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/mmu.h"
#include "hlthunk_emulator/trace_file.h"
#include "hlthunk_emulator/traffic.h"
#include "hlthunk_shim/hlthunk/abi.h"

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gaudi::emu {

/** A packet's copy. */
struct engine_copy {
    uint32_t queue;
    uint64_t dst; /**< device addresses */
    uint64_t src;
    uint64_t bytes;
    memory_side to;
    memory_side from;
};

class job_trace {
public:
    /** @param file  Outlives it. @param card  Whose jobs these are. */
    job_trace(trace_file &file, unsigned card) : file_(file), card_(card) {}

    /** A queue begins with a copy of a job. */
    void begin(uint64_t seq, const engine_copy &begun, model_time now);

    /** It has ended. @param left  Bytes that were not copied. */
    void end(uint64_t seq, uint32_t queue, uint64_t left, model_time now);

    /** When the timing model has copies of a job begin and end that have not
     *  been told yet: the flows they became, by time of arrival. */
    void set_times(uint64_t seq, std::span<const flow> flows);

    /** The job has ended. @param status  How; @param submitted  And when. */
    void end_job(uint64_t seq, const char *status, model_time submitted);

    /** A job is aborted, and why. */
    void tell_fault(uint64_t seq, uint32_t queue, const char *why,
                    model_time now);

    /** Have it all written. */
    void flush() { file_.flush(); }

private:
    struct told_copy {
        engine_copy what;
        model_time begin;
        model_time end; /* 0 while it is under way */
        uint64_t left;
        bool modelled; /* the times are the model's */
    };

    std::vector<told_copy> &of(uint64_t seq)
    {
        return copies_[seq % shim::max_cs_in_flight];
    }
    void name_card(unsigned card);
    void name_queue(uint32_t queue);
    void add_link(const told_copy &told, uint64_t seq, unsigned card,
                  bool to_card);
    void add_links(const told_copy &told, uint64_t seq);
    void add_slice(const told_copy &told, uint64_t seq, const char *status,
                   model_time submitted);
    [[gnu::format(printf, 2, 3)]] void add_event(const char *format, ...);

    trace_file &file_;
    const unsigned card_;
    std::array<std::vector<told_copy>, shim::max_cs_in_flight> copies_;
    std::set<unsigned> named_cards_;
    std::set<uint32_t> named_queues_;
    std::string lines_; /* that are being made */
};

} // namespace gaudi::emu
