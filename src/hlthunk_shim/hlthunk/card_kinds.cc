/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/hlthunk/card_kinds.h"

#include <algorithm>
#include <bit>

namespace gaudi::shim {

namespace {

/* PCI ids: get_asic_type in habanalabs_drv.c of the vendor's driver
 * (HabanaAI/drivers.accel.habanalabs.kernel), and of a Gaudi3's dies
 * specs/common/pci_ids.h of HabanaAI/Intel_Gaudi3_Software. 0x1021 is HL-288,
 * 0x1063 HL-338; letters, as in Gaudi2E, are revisions; HL-2000M is a Gaudi.
 * Ends of device memory and queues: drivers/accel/habanalabs, include/gaudi2
 * (hw_ip, and enum gaudi2_queue_id); it lets programs submit to two streams of
 * PDMA_0, to one of PDMA_1, and to all of the EDMA engines, of which one may be
 * missing (edma_binning). */
constexpr card_kind kinds[] = {
    {.name    = "Gaudi",
     .pci_ids = {0x1000, 0x1010, 0x1001, 0x1011},
     .names   = {HLTHUNK_DEVICE_GAUDI, HLTHUNK_DEVICE_GAUDI_HL2000M,
                 HLTHUNK_DEVICE_INVALID, HLTHUNK_DEVICE_INVALID}},
    {.name       = "Gaudi2",
     .pci_ids    = {pci_id_gaudi2, 0x1021},
     .names      = {HLTHUNK_DEVICE_GAUDI2, HLTHUNK_DEVICE_GAUDI2B,
                    HLTHUNK_DEVICE_GAUDI2C, HLTHUNK_DEVICE_GAUDI2D},
     .memory_end = 0x1002000000000000,
     .page_mask  = 0xffffffffffff,
     /* Many times its memory, and room for 64 cards in the 256 TiB. */
     .window_bytes = uint64_t{1} << 41,
     .queues       = {queue_range{gaudi2_queue_pdma0, 2},
                      queue_range{gaudi2_queue_pdma1, 1}},
     .edma_queues  = gaudi2_queue_edma,
     .ports        = 2},
    {.name           = "Gaudi3",
     .pci_ids        = {0x1060, 0x1061, 0x1062, 0x1063},
     .names          = {HLTHUNK_DEVICE_GAUDI3, HLTHUNK_DEVICE_GAUDI3D,
                        HLTHUNK_DEVICE_INVALID, HLTHUNK_DEVICE_INVALID},
     .memory_end     = 0x0202000000000000,
     .link_bandwidth = gen5_bandwidth,
     .ports          = 3}};

constexpr card_kind unknown = {.name = "unknown"};

template <typename Values, typename Value>
bool has(const Values &values, Value wanted)
{
    return std::find(values.begin(), values.end(), wanted) != values.end();
}

} // namespace

const card_kind &find_kind(uint32_t pci_id, hlthunk_device_name name)
{
    for (const card_kind &kind : kinds) {
        if ((pci_id != 0) && has(kind.pci_ids, pci_id)) {
            return kind;
        }
    }
    for (const card_kind &kind : kinds) {
        if ((name != HLTHUNK_DEVICE_INVALID) && has(kind.names, name)) {
            return kind;
        }
    }
    return unknown;
}

queue_range find_queues(const card_kind &kind, const hlthunk_hw_ip_info &info,
                        dma_direction direction)
{
    if (direction != dma_direction::device_to_device) {
        return kind.queues[static_cast<size_t>(direction)];
    }
    const auto engine =
        static_cast<size_t>(std::countr_zero(info.edma_enabled_mask));
    return (is_supported(kind) && (engine < kind.edma_queues.size()))
               ? queue_range{kind.edma_queues[engine], 1}
               : queue_range{};
}

std::string supported_kinds()
{
    std::string names;
    for (const card_kind &kind : kinds) {
        if (is_supported(kind)) {
            names += (names.empty() ? "" : ", ") + std::string(kind.name);
        }
    }
    return names;
}

capabilities find_capabilities(const card_kind &kind,
                               const hlthunk_hw_ip_info &info)
{
    capabilities result;
    result.memory_start = info.dram_base_address;
    result.memory_end =
        std::max(kind.memory_end, info.dram_base_address + info.dram_size);
    result.memory_bytes     = info.dram_size;
    result.page_bytes       = info.dram_page_size;
    result.page_mask        = kind.page_mask;
    result.window_bytes     = kind.window_bytes;
    result.copies_in_flight = max_cs_in_flight;
    result.link_bandwidth   = kind.link_bandwidth;
    for (size_t i = 0; i < dma_directions; ++i) {
        result.streams[i] =
            find_queues(kind, info, static_cast<dma_direction>(i)).count;
    }
    return result;
}

} // namespace gaudi::shim
