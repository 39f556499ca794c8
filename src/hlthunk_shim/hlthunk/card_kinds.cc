#include "hlthunk_shim/hlthunk/card_kinds.h"

#include <algorithm>

namespace gaudi::shim {

namespace {

/* PCI ids: pci_ids.h of hl-thunk-open, and of HCL for Gaudi3. Ends of device
 * memory and queues: drivers/accel/habanalabs, include/gaudi2 (hw_ip, and enum
 * gaudi2_queue_id); it lets programs submit to two streams of PDMA_0, to one
 * of PDMA_1, and copies within the card use one of the first EDMA. */
constexpr card_kind kinds[] = {
    {.name = "Gaudi", .pci_ids = {0x1000, 0x1010}, .has_mmu = false},
    {.name       = "Gaudi2",
     .pci_ids    = {pci_id_gaudi2},
     .memory_end = 0x1002000000000000,
     .page_mask  = 0xffffffffffff,
     /* Many times its memory, and room for 64 cards in the 256 TiB. */
     .window_bytes = uint64_t{1} << 41,
     .queues       = {queue_range{gaudi2_queue_pdma0, 2},
                      queue_range{gaudi2_queue_pdma1, 1},
                      queue_range{gaudi2_queue_edma0, 1}}},
    {.name           = "Gaudi3",
     .pci_ids        = {0x1060, 0x1062, 0x1063},
     .memory_end     = 0x0202000000000000,
     .link_bandwidth = gen5_bandwidth}};

constexpr card_kind unknown = {.name = "unknown"};

} // namespace

const card_kind &find_kind(uint32_t pci_id)
{
    for (const card_kind &kind : kinds) {
        const auto &ids = kind.pci_ids;
        if ((pci_id != 0) &&
            (std::find(ids.begin(), ids.end(), pci_id) != ids.end())) {
            return kind;
        }
    }
    return unknown;
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
        result.streams[i] = kind.queues[i].count;
    }
    return result;
}

} // namespace gaudi::shim
