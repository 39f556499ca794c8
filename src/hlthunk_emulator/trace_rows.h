/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How events get into the trace: the rows of a card, and their names.
 *
 * Not thread-safe: its owner's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/trace_file.h"
#include "hlthunk_emulator/traffic.h"

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

namespace gaudi::emu {

/** Microseconds. Readers make a double of it, and nanoseconds of that by
 * cutting off: with another fifth of one they get back what this was, and
 * neighbours in a row do not overlap. */
struct time_text {
    explicit time_text(model_time time)
    {
        std::snprintf(text, sizeof(text), "%ld.%03ld2", time / 1000,
                      time % 1000);
    }
    char text[32];
};

/** The trace of this process. @return nullptr when it is off, or cannot be had.
 */
trace_file *find_trace();

/** Rows of a card in the trace; ports come behind its queues. */
inline constexpr uint32_t rows_of_card   = 512;
inline constexpr uint32_t first_port_row = 384;

/** Numbers of "processes", which are cards. Boxes that write the same file
 *  differ in them. */
uint32_t number_of_card(unsigned card);

class trace_rows {
public:
    /** @param trace  nullptr: nothing is traced. */
    trace_rows(trace_file *trace, unsigned card) : trace_(trace), card_(card) {}

    /** nullptr: nothing is traced, and nothing below is to be called. */
    [[nodiscard]] trace_file *file() const { return trace_; }

    [[gnu::format(printf, 2, 3)]] void add_event(const char *format, ...);

    /** Where what a card does is shown; it gets its name first. */
    std::string place_of(unsigned card);

    /** A row of this card, which gets its name first. */
    std::string row_of(uint32_t row, const std::string &name);

    /** Have what was added written. */
    void hand_over();

private:
    trace_file *const trace_;
    const unsigned card_;
    std::set<unsigned> named_cards_; /* in the trace */
    std::set<uint32_t> named_rows_;
    std::string lines_; /* that are being made */
};

} // namespace gaudi::emu
