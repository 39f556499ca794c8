/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the emulated cards are: HLTHUNK_EMU_ASIC names their kind.
 *
 * Figures: Linux `drivers/accel/habanalabs` (gaudi2, include/gaudi2) and its
 * uapi header, hl-thunk-open; of Gaudi3 the vendor's driver
 * (HabanaAI/drivers.accel.habanalabs.kernel, gaudi3.c and pci_ids.h), and the
 * address map in HabanaAI's public Gaudi3 software (specs_h9/gaudi3/gaudi3.h).
 */
#pragma once

#include "hlthunk_shim/abi/hlthunk.h"

#include <cstdint>
#include <optional>
#include <string>

namespace gaudi::emu {

/** Cards that a box can have. */
inline constexpr unsigned max_cards = 64;

/** Addresses from start on, up to before end. */
struct va_range {
    uint64_t start;
    uint64_t end;
};

struct asic {
    std::string name;        /**< in HLTHUNK_EMU_ASIC */
    std::string device_type; /**< in sysfs */
    const char *card_name;
    uint32_t pci_id;
    uint8_t revision;
    uint16_t server_type;

    /** Programs may submit to queues of the DMA engines. */
    bool user_queues;
    /** Whoever allocates device memory may choose the page size. */
    bool user_page_size;

    uint64_t memory;      /**< bytes of device memory */
    uint64_t dram_page;   /**< bytes that the driver allocates in */
    uint64_t dram_start;  /**< physical address of device memory; virtual ones
                               begin behind it */
    uint64_t dram_va_end; /**< end of its virtual addresses */
    va_range dram_hints;  /**< of these, not given unless wished for */
    va_range host;        /**< device addresses of host memory, */
    va_range host_huge;   /**< and of what is made of huge pages */

    uint32_t edma_mask;
    uint64_t sram_start;
    uint32_t sram_bytes;
    uint32_t decoder_mask;
    uint64_t tpc_mask;
    uint32_t rotator_mask;
    uint16_t user_interrupts;
    uint16_t first_user_interrupt;
    uint16_t tpc_interrupt;
};

/** Read the name of a kind: gaudi2, gaudi3, or the PCIe cards hl288 and hl338,
 *  with a letter for a variant. */
std::optional<asic> parse_asic(const std::string &name);

inline constexpr uint64_t host_page      = 4096;
inline constexpr uint64_t host_huge_page = 2 << 20;

/* At the start of the host range: mapped command buffers of the driver
 * (CB_VA_POOL_SIZE), then its own internal ones. */
inline constexpr uint64_t command_buffer_pool = 4ull << 30;
inline constexpr uint64_t driver_host_range =
    command_buffer_pool + host_huge_page;

/* Driver addresses and hints count DRAM pages in the low 48 bits. */
inline constexpr uint64_t dram_va_offset_mask = 0xffffffffffff;

/* All queues of the card; the last one is the device CPU's. */
inline constexpr uint32_t queue_cpu   = 260;
inline constexpr uint32_t queue_count = 261;

/* Behind them: those of hlthunk_emu_copy. */
inline constexpr uint32_t internal_queue       = queue_count;
inline constexpr uint32_t internal_queue_count = 8;

/* HL_MAX_CB_SIZE less the driver's own part */
inline constexpr uint32_t max_command_buffer = 0x200000 - 32;

/* Of the network ports; none is initialised for programs. */
inline constexpr uint32_t first_nic_queue = 156;
inline constexpr uint32_t nic_queue_count = 96;

/** Kinds of DMA engine behind a queue. */
enum class engine_kind { none, pdma, edma };

inline constexpr uint32_t edma_count = shim::gaudi2_queue_edma.size();

/** Which EDMA engine is behind a queue; edma_count: none of them. */
constexpr uint32_t edma_of(uint32_t queue)
{
    uint32_t engine = 0;
    while ((engine < edma_count) && (queue - shim::gaudi2_queue_edma[engine] >=
                                     shim::streams_per_engine)) {
        ++engine;
    }
    return engine;
}

/** The engine behind a queue; `none` is one that moves no data. */
constexpr engine_kind engine_of(uint32_t queue)
{
    if ((queue < shim::gaudi2_queue_edma[0]) || (queue >= internal_queue)) {
        return engine_kind::pdma;
    }
    return (edma_of(queue) < edma_count) ? engine_kind::edma
                                         : engine_kind::none;
}

/** Whether the driver lets programs submit to a queue of Gaudi2, as
 *  gaudi2_is_queue_enabled. @param edma_mask  The EDMA engines there are. */
constexpr bool is_user_queue(uint32_t queue, uint32_t edma_mask)
{
    if (queue < shim::gaudi2_queue_edma[0]) {
        return (queue == shim::gaudi2_queue_pdma0) ||
               (queue == shim::gaudi2_queue_pdma0 + 1) ||
               (queue == shim::gaudi2_queue_pdma1);
    }
    const uint32_t edma = edma_of(queue);
    if (edma < edma_count) {
        return ((edma_mask >> edma) & 1) != 0;
    }
    return (queue < queue_cpu) &&
           ((queue < first_nic_queue) ||
            (queue >= first_nic_queue + nic_queue_count));
}

} // namespace gaudi::emu
