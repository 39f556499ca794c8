/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The file that HLTHUNK_EMU_TRACE names, which the processes of a box write
 * together: events in the JSON array form of the Trace Event Format, one a
 * line. Each writer takes the end of the array away, appends, and ends it
 * again; a process that is killed in between leaves it without, which readers
 * of that format allow ("Trace Event Format", JSON Array Format).
 *
 * A run is all processes that follow each other without a gap: each has a lock
 * of the file, shared, as long as it lives, and who finds nobody else begins a
 * new trace. Lines are gathered and appended together, in a second lock, so
 * that those of several processes do not mix; the half line of a process that
 * was killed in the middle is cut off by the next who writes.
 *
 * Knows nothing of cards. Any thread.
 */
#pragma once

#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace gaudi::emu {

class trace_file {
public:
    /** Have lines written, soon: when there are many, or a second after the
     *  last ones at the next call. @param lines  Whole ones, each an event with
     *  a comma behind it. */
    void add(std::string_view lines);

    /** Write what is gathered. */
    void flush();

    /** Whether it can be written. */
    [[nodiscard]] bool good() const { return good_; }

    /** This process, as events name it. */
    [[nodiscard]] const std::string &process() const { return process_; }

    /** A number that no other call in any process of the machine gets. */
    uint64_t next_id();

    /** Begin or join one; why it cannot be had is told on stderr. */
    explicit trace_file(const std::string &path);
    trace_file(const trace_file &)            = delete;
    trace_file &operator=(const trace_file &) = delete;
    ~trace_file() { flush(); }

private:
    using clock = std::chrono::steady_clock;

    int open();
    int begin_or_join();
    int append();
    [[nodiscard]] int cut_end(off_t length, bool &comma) const;
    void write_gathered();
    void give_up(int error);

    const std::string path_;
    const std::string process_;
    std::atomic<bool> good_{true};
    std::mutex lock_; /* of what follows */
    util::unique_fd fd_;
    util::closed_in_children closed_in_children_;
    std::string gathered_;
    clock::time_point written_ = clock::now();
    uint32_t last_id_          = 0;
};

/**
 * Why a path cannot be that of a trace.
 *
 * @return 0, or an errno: EEXIST for a file that has something else in it. The
 *         file is not made.
 */
int why_no_trace(const std::string &path);

/** The same text with other letters for what may not be in a string of JSON. */
std::string json_text(std::string text);

} // namespace gaudi::emu
