/**
 * What is known of an open card beyond its name: all that differs between
 * generations and matters above.
 */
#pragma once

#include "util/addresses.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gaudi::shim {

/** What the two device addresses of a copy stand for. Host memory is what is
 *  registered with the card or imported: the engines that copy within the card
 *  do not reach either. */
enum class dma_direction { host_to_device, device_to_host, device_to_device };

inline constexpr size_t dma_directions = 3;

/** What a x16 slot leaves for data each way, bytes/second. */
inline constexpr double gen4_bandwidth = 25000.0 * (1 << 20);
inline constexpr double gen5_bandwidth = 50000.0 * (1 << 20);

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

    double link_bandwidth = gen4_bandwidth; /**< each way, bytes/second */

    /** The first address from this one on where a page can start. */
    [[nodiscard]] uint64_t next_page(uint64_t address) const
    {
        const uint64_t counted = address & page_mask;
        return (address - counted) + util::round_up(counted, page_bytes);
    }
};

} // namespace gaudi::shim
