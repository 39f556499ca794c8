/**
 * What the emulated card is: Gaudi2.
 *
 * Figures: Linux `drivers/accel/habanalabs/gaudi2` and its uapi header, and
 * hl-thunk-open. The DRAM page is that of the 48 MB generation of the driver;
 * newer ones use 768 MB, so users have to read it from the device.
 */
#pragma once

#include "hlthunk_shim/hlthunk/abi.h"

#include <cstdint>

namespace gaudi::emu {

inline constexpr uint64_t dram_page     = 48ull << 20;
inline constexpr uint64_t host_page     = 4096;
inline constexpr uint64_t dram_physical = 0x1001000000000000;
inline constexpr uint64_t dram_va_end   = 0x1002000000000000;
inline constexpr uint64_t host_va_start = 0xfff0000000000000;
inline constexpr uint64_t host_va_end   = 0xfff8000000000000;

/* Driver addresses and hints count DRAM pages in the low 48 bits. */
inline constexpr uint64_t dram_va_offset_mask = 0xffffffffffff;

/* All queues of the card; the last one is the device CPU's. */
inline constexpr uint32_t queue_cpu   = 260;
inline constexpr uint32_t queue_count = 261;

/* HL_MAX_CB_SIZE less the driver's own part */
inline constexpr uint32_t max_command_buffer = 0x200000 - 32;

/** Kinds of DMA engine behind a queue. */
enum class engine_kind { none, pdma, edma };

/** The engine behind a queue; `none` is one that moves no data. */
constexpr engine_kind engine_of(uint32_t queue)
{
    auto within = [queue](uint32_t first) {
        return (queue >= first) && (queue < first + 8);
    };
    if (within(0)) {
        return engine_kind::pdma;
    }
    if (within(8) || within(48) || within(84) || within(120)) {
        return engine_kind::edma;
    }
    return engine_kind::none;
}

} // namespace gaudi::emu
