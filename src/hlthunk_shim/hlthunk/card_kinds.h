/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The generations of cards, one row for each: all that the shim knows of a card
 * and its driver does not tell.
 */
#pragma once

#include "hlthunk_shim/abi/hlthunk.h"
#include "hlthunk_shim/capabilities.h"

#include <array>

namespace gaudi::shim {

struct card_kind {
    const char *name;
    /** Of all variants; 0: none. */
    std::array<uint32_t, 4> pci_ids{};
    /** As the driver library names its variants, for ids that are not known. */
    std::array<hlthunk_device_name, 4> names = {
        HLTHUNK_DEVICE_INVALID, HLTHUNK_DEVICE_INVALID, HLTHUNK_DEVICE_INVALID,
        HLTHUNK_DEVICE_INVALID};
    /** Where the device addresses of its memory end, whatever there is of it;
     *  0: with the memory. */
    uint64_t memory_end = 0;
    /* As in capabilities. */
    uint64_t page_mask    = UINT64_MAX;
    uint64_t window_bytes = 0;
    /** Over PCIe, by direction; of cards that run command buffers in the
     *  user's memory. Others have no queues here. */
    std::array<queue_range, 2> queues{};
    /** First queues of the engines that copy within the card, in the order of
     *  the bits of edma_enabled_mask. */
    std::array<uint32_t, 8> edma_queues{};
    double link_bandwidth = gen4_bandwidth; /**< as in capabilities */
    /** The generation of ports of its own, if they are known
     * (abi/port_formats.h); 0: none. */
    unsigned ports = 0;
};

/** The row of a card; that of an unknown one for other ids and names. */
const card_kind &find_kind(uint32_t pci_id, hlthunk_device_name name);

/** Whether a row is not that of unknown cards. */
inline bool is_known(const card_kind &kind)
{
    return kind.pci_ids.front() != 0;
}

/** Whether the transports can use cards of a kind. */
inline bool is_supported(const card_kind &kind)
{
    return kind.queues.front().count != 0;
}

/** Whether they can in processes that have SynapseAI, and nowhere else. */
inline bool is_for_frameworks(const card_kind &kind)
{
    return (kind.memory_end != 0) && !is_supported(kind);
}

/** The queues of a direction that a card has: the engine that copies within it
 *  is the first one that it tells of. None: count is 0. */
queue_range find_queues(const card_kind &kind, const hlthunk_hw_ip_info &info,
                        dma_direction direction);

/** The kinds of cards that the transports can use, as "Gaudi2". */
[[nodiscard]] std::string supported_kinds();

/** What the driver and the table say of a card. */
capabilities find_capabilities(const card_kind &kind,
                               const hlthunk_hw_ip_info &info);

} // namespace gaudi::shim
