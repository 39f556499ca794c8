/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What goes with the messages of a card's ports beside their bytes: the timing
 * model and the trace. Made when a card's ports are opened and one of them is
 * on.
 *
 * In the trace each port has a row, with a slice per message from where its
 * port has begun it to where it has arrived: in the model if there is one, else
 * as this machine has done it.
 *
 * Not thread-safe: its context's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/ports/formats.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/trace_rows.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>

namespace gaudi::emu {

class port_watch {
public:
    using clock = std::chrono::steady_clock;

    /** So many messages of a queue pair the model knows before they are sent,
     *  so that they follow each other without a gap. */
    static constexpr uint32_t most_ahead = 4;

    /** @return nullptr when neither model nor trace is on. @throws bad_alloc.
     */
    static std::unique_ptr<port_watch> create(unsigned card);

    ~port_watch();
    port_watch(const port_watch &)            = delete;
    port_watch &operator=(const port_watch &) = delete;

    /** A message is to be sent; its WQE's number is unique while it is. */
    void begin(port_end from, uint32_t qpn, uint32_t number,
               const send_wqe &wqe);

    /** When its last byte arrives at the earliest, as far as is known now; the
     *  clock's epoch: at once. */
    [[nodiscard]] clock::time_point
    end_of(unsigned port, uint32_t qpn, uint32_t number, clock::time_point now);

    /** It has been acknowledged. */
    void end(port_end from, uint32_t qpn, uint32_t number, const send_wqe &wqe);

    /** Nothing of a queue pair is under way any more. */
    void forget(unsigned port, uint32_t qpn);

private:
    port_watch(box_traffic *model, trace_file *trace, unsigned card)
        : model_(model), rows_(trace, card), card_(card)
    {}

    void drop(uint64_t job);

    box_traffic *const model_; /* nullptr: messages take as long as they do */
    trace_rows rows_;
    const unsigned card_;
    struct message {
        model_time began;
        clock::time_point end; /* at the earliest, when last asked for */
    };
    std::map<uint64_t, message> begun_;             /* by job */
    std::array<model_time, ports_of_card> ended_{}; /* the last one of each */
};

} // namespace gaudi::emu
