/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The messages of a card's ports in the timing model. Made when a card's ports
 * are opened and there is a model.
 *
 * Not thread-safe: its context's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/ports/formats.h"
#include "hlthunk_emulator/ports/wiring.h"

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

    /** @return nullptr when there is no model. @throws bad_alloc. */
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
    void end(unsigned port, uint32_t qpn, uint32_t number);

    /** Nothing of a queue pair is under way any more. */
    void forget(unsigned port, uint32_t qpn);

private:
    port_watch(box_traffic &model, unsigned card) : model_(model), card_(card)
    {}

    void drop(uint64_t job);

    box_traffic &model_;
    const unsigned card_;
    /* By job: its end at the earliest, when last asked for. */
    std::map<uint64_t, clock::time_point> begun_;
};

} // namespace gaudi::emu
