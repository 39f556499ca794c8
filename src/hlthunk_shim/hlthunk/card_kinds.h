/**
 * The generations of cards, one row for each: all that the shim knows of a card
 * and its driver does not tell.
 */
#pragma once

#include "hlthunk_shim/capabilities.h"
#include "hlthunk_shim/hlthunk/abi.h"

#include <array>
#include <string>

namespace gaudi::shim {

/** The queues of a direction that programs may submit to, one for each stream,
 *  as the driver numbers them. */
struct queue_range {
    uint32_t first = 0;
    unsigned count = 0;
};

struct card_kind {
    const char *name;
    std::array<uint32_t, 3> pci_ids{}; /**< 0: none */
    /** Device memory has virtual addresses, so that it can be mapped. */
    bool has_mmu = true;
    /** Where the device addresses of its memory end, whatever there is of it;
     *  0: with the memory. */
    uint64_t memory_end = 0;
    /* As in capabilities. */
    uint64_t page_mask    = UINT64_MAX;
    uint64_t window_bytes = 0;
    /** By direction; of cards that run command buffers in the user's memory.
     *  Others have no queues here. */
    std::array<queue_range, dma_directions> queues{};
    double link_bandwidth = gen4_bandwidth; /**< as in capabilities */
};

/** The row of a card; that of an unknown one for other ids. */
const card_kind &find_kind(uint32_t pci_id);

/** Whether the transports can use cards of a kind. */
inline bool is_supported(const card_kind &kind)
{
    return kind.queues.front().count != 0;
}

/** The kinds that the transports can use, as "Gaudi2". */
std::string supported_kinds();

/** What the driver and the table say of a card. */
capabilities find_capabilities(const card_kind &kind,
                               const hlthunk_hw_ip_info &info);

} // namespace gaudi::shim
