/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of hl-thunk's C ABI that this project calls or implements.
 *
 * Facts (names, values, member order) are those of the public headers
 * hl-thunk-open v1.10 `hlthunk.h` and HabanaAI/HCL `hlthunk.h`, and of the
 * Linux uapi header `drm/habanalabs_accel.h`; both hl-thunk headers give the
 * same binary layout of every structure here. Above the shim it comes with
 * library.h, whose functions take and fill these structures.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <linux/ioctl.h>

extern "C" {

enum hlthunk_device_name {
    HLTHUNK_DEVICE_GOYA          = 0,
    HLTHUNK_DEVICE_GAUDI         = 2,
    HLTHUNK_DEVICE_INVALID       = 3,
    HLTHUNK_DEVICE_DONT_CARE     = 4,
    HLTHUNK_DEVICE_GAUDI2        = 5,
    HLTHUNK_DEVICE_GAUDI_HL2000M = 6,
    HLTHUNK_DEVICE_GAUDI3        = 7,
    HLTHUNK_DEVICE_GAUDI2B       = 8,
    HLTHUNK_DEVICE_GAUDI2C       = 10,
    HLTHUNK_DEVICE_GAUDI2D       = 11,
    HLTHUNK_DEVICE_GAUDI3D       = 12
};

struct hlthunk_hw_ip_info {
    uint64_t sram_base_address;
    uint64_t dram_base_address; /**< First device VA of user DRAM */
    uint64_t dram_size;         /**< User DRAM, bytes */
    uint32_t sram_size;
    uint32_t num_of_events;
    uint32_t device_id; /**< PCI device id */
    uint32_t cpld_version;
    uint32_t psoc_pci_pll_nr;
    uint32_t psoc_pci_pll_nf;
    uint32_t psoc_pci_pll_od;
    uint32_t psoc_pci_pll_div_factor;
    uint16_t tpc_enabled_mask;
    uint8_t dram_enabled;
    uint8_t cpucp_version[128];
    uint32_t module_id;
    uint8_t card_name[16];
    uint32_t decoder_enabled_mask;
    uint8_t mme_master_slave_mode;
    uint64_t tpc_enabled_mask_ext;
    uint64_t dram_page_size; /**< bytes, not a power of two on Gaudi2 */
    uint16_t first_available_interrupt_id;
    uint32_t edma_enabled_mask;
    uint16_t server_type;
    uint64_t pdma_user_owned_ch_mask;
    uint16_t number_of_user_interrupts;
    uint64_t device_mem_alloc_default_page_size;
    uint64_t nic_ports_mask;
    uint8_t interposer_version;
    uint8_t substrate_version;
    uint64_t nic_ports_external_mask;
    uint32_t mme_enabled_mask;
    uint8_t odp_supported;
    uint8_t security_enabled;
    uint8_t revision_id;
    uint16_t tpc_interrupt_id;
    uint64_t engine_core_interrupt_reg_addr;
    uint32_t rotator_enabled_mask;
    uint32_t sched_arc_enabled_mask;
    uint64_t reserved_dram_size;
};

struct hlthunk_dram_usage_info {
    uint64_t dram_free_mem; /**< Free user DRAM of the card, bytes */
    uint64_t ctx_dram_mem;  /**< Allocated by this file descriptor, bytes */
};

/** Of compute and control nodes. The driver counts since it was loaded; of the
 *  emulator each process knows its own opens only. */
struct hlthunk_open_stats_info {
    uint64_t open_counter;         /**< Opens of the compute node */
    uint64_t last_open_period_ms;  /**< Open to close, the last time */
    uint8_t is_compute_ctx_active; /**< Somebody has the compute node */
    /** It is closed, but something (a dma-buf) keeps its context. The emulator
     *  says so, too, when the node's holder cannot be looked into. */
    uint8_t compute_ctx_in_release;
    /** Newer header only; a library of the older one does not write it, and the
     *  emulator does not know it: 0. */
    uint8_t compute_ctx_has_mapped_resources;
};

struct hlthunk_cs_in {
    void *chunks_restore;
    void *chunks_execute; /**< array of hl_cs_chunk */
    uint32_t num_chunks_restore;
    uint32_t num_chunks_execute;
    uint32_t flags;
};

struct hlthunk_cs_out {
    uint64_t seq;
    uint32_t status;
    uint16_t sob_count_before_submission;
};

struct hl_cs_chunk {
    uint64_t cb_handle; /**< device VA when the CB is the user's own */
    uint32_t queue_index;
    uint32_t cb_size; /**< bytes */
    uint32_t cs_chunk_flags;
    uint32_t collective_engine_id;
    uint32_t pad[10];
};

struct hlthunk_wait_multi_cs_in {
    uint64_t *seq;
    uint64_t timeout_us;
    uint32_t seq_len;
};

struct hlthunk_wait_multi_cs_out {
    uint32_t status;
    uint32_t seq_set;
    uint8_t completed;
};

/* Argument of the driver's memory ioctl, for its import of a dma-buf. hl-thunk
 * has no function for that operation, which the vendor's own driver knows and
 * the mainline one does not (HabanaAI/Intel_Gaudi3_Software, `hl_cni.h`). */
union hl_mem_args {
    struct {
        uint64_t fd;     /**< the dma-buf */
        uint64_t length; /**< of its bytes, from the first one on */
        uint64_t unused;
        uint32_t op;
        uint32_t flags;
        uint32_t ctx_id;
        uint32_t num_of_elements;
    } in;
    struct {
        uint64_t device_virt_addr; /**< in the host range of the importer */
    } out;
};

} /* extern "C" */

static_assert(sizeof(hlthunk_hw_ip_info) == 336);
static_assert(offsetof(hlthunk_hw_ip_info, module_id) == 188);
static_assert(offsetof(hlthunk_hw_ip_info, dram_page_size) == 224);
static_assert(offsetof(hlthunk_hw_ip_info, reserved_dram_size) == 328);
static_assert(sizeof(hlthunk_open_stats_info) == 24);
static_assert(sizeof(hl_cs_chunk) == 64);
static_assert(sizeof(hl_mem_args) == 40);
static_assert(offsetof(hl_mem_args, in.op) == 24);

namespace gaudi::shim {

/* Values of hlthunk_wait_for_cs's status (HL_WAIT_CS_STATUS_*). Which of them
 * it gives as its result, too, differs between libraries: 0, or the status. */
enum cs_status : uint32_t {
    cs_completed = 0,
    cs_busy      = 1,
    cs_timed_out = 2,
    cs_aborted   = 3
};

/* What hlthunk_get_device_status_info gives (enum hl_device_status), or a
 * negative errno. */
enum device_status : int {
    device_operational          = 0,
    device_in_reset             = 1,
    device_malfunction          = 2,
    device_needs_reset          = 3,
    device_in_creation          = 4,
    device_resets_after_release = 5
};

/* HL_CS_CHUNK_FLAGS_USER_ALLOC_CB: cb_handle holds a device VA. */
inline constexpr uint32_t chunk_flag_user_cb = 1;

/* HL_MAX_JOBS_PER_CS: chunks of one submission. */
inline constexpr uint32_t max_chunks_per_cs = 512;

/* Submissions of one open device that may be incomplete at a time. The driver
 * keeps them in a ring indexed by sequence number, and hl-thunk's call spins
 * inside while the place is taken, so whoever wants "try again" has to count.
 */
inline constexpr uint32_t max_cs_in_flight = 64;

/* First user queue of each Gaudi2 DMA engine (enum gaudi2_queue_id); of the
 * EDMA engines in the order of the bits of edma_enabled_mask. */
inline constexpr uint32_t gaudi2_queue_pdma0               = 0;
inline constexpr uint32_t gaudi2_queue_pdma1               = 4;
inline constexpr std::array<uint32_t, 8> gaudi2_queue_edma = {8,  12, 48,  52,
                                                              84, 88, 120, 124};

/* Queues of each of these engines. */
inline constexpr uint32_t streams_per_engine = 4;

/* HL_MEM_OP_REG_DMABUF_FD: import; HL_MEM_OP_UNMAP undoes it. */
inline constexpr uint32_t memory_op_import = 99;

/* The memory ioctl: of accel nodes, which are DRM's (Linux 6.7 on), and of the
 * driver's own nodes before. DRM looks at the number alone, and the old one is
 * another call there. */
inline constexpr unsigned long memory_ioctl     = _IOWR('d', 0x44, hl_mem_args);
inline constexpr unsigned long memory_ioctl_old = _IOWR('H', 0x05, hl_mem_args);
static_assert(memory_ioctl == 0xc0286444);

/* Major device number of accel nodes (ACCEL_MAJOR). */
inline constexpr unsigned accel_major = 261;

/* Buffer for a bus id, "dddd:bb:dd.f" and the terminator. */
inline constexpr size_t bus_id_size = 13;

/* PCI device id. Others: card_kinds.cc. */
inline constexpr uint32_t pci_id_gaudi2 = 0x1020;

} // namespace gaudi::shim
