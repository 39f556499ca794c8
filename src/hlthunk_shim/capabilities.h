/* SPDX-License-Identifier: BSD-3-Clause */
/** What differs between cards, and matters above the shim. */
#pragma once

#include "hlthunk_shim/engine/dma_engine.h"
#include "util/addresses.h"

#include <array>

namespace gaudi::shim {

/** 256 TiB of addresses that no generation of cards uses, for device memory of
 *  others which no card of the process reaches. */
inline constexpr uint64_t unreachable_memory = 0x4001000000000000;

/** What a x16 slot leaves for data each way, bytes/second. */
inline constexpr double gen4_bandwidth = 25000.0 * (1 << 20);
inline constexpr double gen5_bandwidth = 50000.0 * (1 << 20);

/**
 * Whether an address can be one of device memory: of a Gaudi2 or Gaudi3
 * (DRAM_PHYS_BASE in specs/gaudi2/gaudi2.h and specs_h9/gaudi3/gaudi3.h of
 * HabanaAI/Intel_Gaudi3_Software, and the end of the range of virtual
 * addresses that begins there), of a dma-buf imported among a card's addresses
 * of host memory, which have bit 63, or one of @ref unreachable_memory. All
 * others are host memory: programs keep tags in bits 57 to 62 of pointers, as
 * the linear address masking of x86-64 lets them.
 */
[[nodiscard]] constexpr bool may_be_device_memory(uint64_t address)
{
    const uint64_t part = address >> 48;
    return (part == 0x1001) || (part == 0x0201) ||
           (part == unreachable_memory >> 48) || ((address >> 63) != 0);
}

/** What is known of an open card beyond its name: all that differs between
 *  generations and matters above. */
struct capabilities {
    /** Device addresses that its memory may have: [start, end). Below
     *  util::host_address_end they are host pointers of other processes, too.
     */
    uint64_t memory_start = 0;
    uint64_t memory_end   = 0;
    uint64_t memory_bytes = 0; /**< what programs can have of it */

    /** The driver gives out whole pages, bytes; 0: it does not say. */
    uint64_t page_bytes = 0;
    /** Part of a device address in which pages are counted. */
    uint64_t page_mask = UINT64_MAX;

    /** Address space for the allocations of one card of a process, so that
     *  cards can be told apart, bytes; 0: addresses cannot be wished for. */
    uint64_t window_bytes = 0;

    /** By direction: streams to which programs may submit; 0: the card takes
     *  no copies in it. Copies of one stream do not wait for those of another,
     *  but share the engine. */
    std::array<unsigned, dma_directions> streams{};
    /** Copies that the card takes at a time, over all queues. */
    unsigned copies_in_flight = 64;

    /** A dma-buf may be of a part of what the driver has mapped. Else it is
     *  right of the whole alone. */
    bool exports_parts = true;

    /** The driver says where host memory is mapped for the card, so that its
     *  ports, too, can read it. */
    bool ports_read_host = true;

    double link_bandwidth = gen4_bandwidth; /**< each way, bytes/second */

    /** The first address from this one on where a page can start. */
    [[nodiscard]] uint64_t next_page(uint64_t address) const
    {
        const uint64_t counted = address & page_mask;
        return (address - counted) + util::round_up(counted, page_bytes);
    }
};

/** The queues of a direction that programs may submit to, one for each stream,
 *  as the driver numbers them. */
struct queue_range {
    uint32_t first = 0;
    unsigned count = 0;
};

} // namespace gaudi::shim
