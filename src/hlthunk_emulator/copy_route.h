/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a copy needs of the box that is modelled: links, memories, engine.
 */
#pragma once

#include "hlthunk_emulator/mmu.h"
#include "hlthunk_emulator/traffic.h"

#include <cstdint>

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

/** @param card  Index of the one whose engine copies. */
route route_of(const timing_figures &speed, unsigned card,
               const engine_copy &copy);

} // namespace gaudi::emu
