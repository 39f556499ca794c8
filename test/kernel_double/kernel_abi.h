/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What passes between a process and the habanalabs driver: numbers and
 * structures of its ioctls.
 *
 * Sizes, offsets and values are those of Linux 6.12
 * `include/uapi/drm/habanalabs_accel.h` and of 6.1 `include/uapi/misc/
 * habanalabs.h`, which agree but for the end of hw_ip_info; the import (99) is
 * in the vendor's header only (HabanaAI/Intel_Gaudi3_Software). Names are ours.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gaudi::kernel_double {

/** What is asked for: the number of an ioctl less the first of its kernel. */
enum class call : uint32_t {
    info,
    command_buffer,
    submit,
    wait,
    memory,
    debug
};
inline constexpr unsigned call_count = 6;

/** First number of the driver's own nodes ('H', to Linux 6.6), and of DRM's
 *  (DRM_COMMAND_BASE). The driver compares nothing but the number. */
inline constexpr unsigned first_old_number = 0x01;
inline constexpr unsigned first_drm_number = 0x40;

/** Bytes of the arguments, by call. */
inline constexpr size_t argument_bytes[call_count] = {24, 24, 48, 56, 40, 40};
inline constexpr size_t max_argument_bytes         = 128;

struct info_in {
    uint64_t pointer;
    uint32_t size;
    uint32_t op;
    uint32_t variant;
    uint32_t pad;
};
static_assert(sizeof(info_in) == 24);
static_assert(offsetof(info_in, op) == 12);

enum info_op : uint32_t {
    info_hw_ip         = 0,
    info_dram_usage    = 2,
    info_device_status = 4,
    info_open_stats    = 18
};

struct hw_ip_info {
    uint64_t sram_base_address;
    uint64_t dram_base_address;
    uint64_t dram_size;
    uint32_t sram_size;
    uint32_t num_of_events;
    uint32_t device_id;
    uint32_t module_id;
    uint32_t decoder_enabled_mask;
    uint16_t first_available_interrupt_id;
    uint16_t server_type;
    uint32_t cpld_version;
    uint32_t psoc_pci_pll[4];
    uint8_t tpc_enabled_mask;
    uint8_t dram_enabled;
    uint8_t security_enabled;
    uint8_t mme_master_slave_mode;
    uint8_t cpucp_version[128];
    uint8_t card_name[16];
    uint64_t tpc_enabled_mask_ext;
    uint64_t dram_page_size;
    uint32_t edma_enabled_mask;
    uint16_t number_of_user_interrupts;
    uint8_t reserved1[2];
    uint64_t reserved2;
    uint64_t device_mem_alloc_default_page_size;
    uint64_t reserved3[2];
    uint32_t reserved4;
    uint8_t reserved5;
    uint8_t revision_id;
    uint16_t tpc_interrupt_id;
    uint32_t rotator_enabled_mask;
    uint32_t reserved6;
    uint64_t engine_core_interrupt_reg_addr;
    uint64_t reserved_dram_size;
};
static_assert(sizeof(hw_ip_info) == 304);
static_assert(offsetof(hw_ip_info, device_id) == 32);
static_assert(offsetof(hw_ip_info, tpc_enabled_mask) == 68);
static_assert(offsetof(hw_ip_info, card_name) == 200);
static_assert(offsetof(hw_ip_info, dram_page_size) == 224);
static_assert(offsetof(hw_ip_info, device_mem_alloc_default_page_size) == 248);
static_assert(offsetof(hw_ip_info, revision_id) == 277);
static_assert(offsetof(hw_ip_info, engine_core_interrupt_reg_addr) == 288);
/** Of it, in Linux 6.1. */
inline constexpr size_t old_hw_ip_bytes = 256;

struct dram_usage_info {
    uint64_t free;
    uint64_t of_context;
};

struct device_status_info {
    uint32_t status;
    uint32_t pad;
};

struct open_stats_info {
    uint64_t open_counter;
    uint64_t last_open_period_ms;
    uint8_t is_compute_ctx_active;
    uint8_t compute_ctx_in_release;
    uint8_t pad[6];
};
static_assert(sizeof(open_stats_info) == 24);

inline constexpr uint64_t max_in_flight = 64;

struct submit_in {
    uint64_t restore;
    uint64_t execute;
    uint64_t seq;
    uint32_t num_restore;
    uint32_t num_execute;
    uint32_t timeout;
    uint32_t flags;
    uint32_t ctx_id;
    uint8_t pad[4];
};
static_assert(sizeof(submit_in) == 48);
static_assert(offsetof(submit_in, flags) == 36);

struct submit_out {
    uint64_t seq;
    uint32_t status;
    uint32_t sob_base_offset;
    uint16_t sob_count;
    uint16_t pad[3];
};
static_assert(sizeof(submit_out) == 24);

/** SIGNAL, WAIT, COLLECTIVE_WAIT, ENCAP, RESERVE, UNRESERVE, ENGINE_CORE,
 *  FLUSH, ENGINES: each makes a submission something else. */
inline constexpr uint32_t cs_flags_of_other_types =
    0x2 | 0x4 | 0x8 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000;
inline constexpr uint32_t cs_flag_flush = 0x8000; /**< of posted writes */

struct wait_in {
    uint64_t seq;
    uint64_t timeout_us;
    uint32_t ctx_id;
    uint32_t flags;
    uint64_t rest[4];
};
static_assert(sizeof(wait_in) == 56);

struct wait_out {
    uint32_t status;
    uint32_t flags;
    int64_t timestamp;
    uint32_t completion_map;
    uint32_t pad;
};
static_assert(sizeof(wait_out) == 24);

enum wait_status : uint32_t { completed, busy, timed_out, aborted };
inline constexpr uint32_t wait_flag_interrupt = 2;
inline constexpr uint32_t wait_flag_multi     = 4;
inline constexpr uint32_t wait_out_gone       = 1;

struct memory_in {
    union {
        struct {
            uint64_t size;
            uint64_t page_size;
        } alloc;
        struct {
            uint64_t handle;
        } free;
        struct {
            uint64_t hint;
            uint64_t handle;
        } map_device;
        struct {
            uint64_t address;
            uint64_t hint;
            uint64_t size;
        } map_host;
        struct {
            uint64_t address;
        } unmap;
        struct {
            uint64_t address;
            uint64_t size;
            uint64_t offset;
        } export_dmabuf;
        struct {
            uint64_t fd;
            uint64_t length;
        } import;
    };
    uint32_t op;
    uint32_t flags;
    uint32_t ctx_id;
    uint32_t num_of_elements;
};
static_assert(sizeof(memory_in) == 40);
static_assert(offsetof(memory_in, op) == 24);

/** A handle, a device address, or a descriptor in its low half. */
struct memory_out {
    uint64_t value;
    uint64_t more;
};

enum memory_op : uint32_t {
    memory_alloc  = 0,
    memory_free   = 1,
    memory_map    = 2,
    memory_unmap  = 3,
    memory_export = 5,
    memory_import = 99
};
inline constexpr uint32_t memory_flag_contiguous = 1;
inline constexpr uint32_t memory_flag_shared     = 2;
inline constexpr uint32_t memory_flag_userptr    = 4;
inline constexpr uint32_t memory_flag_force_hint = 8;

/** Between this and the library's structure: what both have alike. */
template <typename From, typename To>
void copy_facts(const From &from, To &to)
{
    to.sram_base_address            = from.sram_base_address;
    to.dram_base_address            = from.dram_base_address;
    to.dram_size                    = from.dram_size;
    to.sram_size                    = from.sram_size;
    to.num_of_events                = from.num_of_events;
    to.device_id                    = from.device_id;
    to.module_id                    = from.module_id;
    to.decoder_enabled_mask         = from.decoder_enabled_mask;
    to.first_available_interrupt_id = from.first_available_interrupt_id;
    to.server_type                  = from.server_type;
    to.cpld_version                 = from.cpld_version;
    to.dram_enabled                 = from.dram_enabled;
    to.security_enabled             = from.security_enabled;
    to.mme_master_slave_mode        = from.mme_master_slave_mode;
    to.tpc_enabled_mask_ext         = from.tpc_enabled_mask_ext;
    to.dram_page_size               = from.dram_page_size;
    to.edma_enabled_mask            = from.edma_enabled_mask;
    to.number_of_user_interrupts    = from.number_of_user_interrupts;
    to.device_mem_alloc_default_page_size =
        from.device_mem_alloc_default_page_size;
    to.revision_id                    = from.revision_id;
    to.tpc_interrupt_id               = from.tpc_interrupt_id;
    to.rotator_enabled_mask           = from.rotator_enabled_mask;
    to.engine_core_interrupt_reg_addr = from.engine_core_interrupt_reg_addr;
    to.reserved_dram_size             = from.reserved_dram_size;
    static_assert(sizeof(to.cpucp_version) == sizeof(from.cpucp_version));
    static_assert(sizeof(to.card_name) == sizeof(from.card_name));
    std::memcpy(to.cpucp_version, from.cpucp_version, sizeof(to.cpucp_version));
    std::memcpy(to.card_name, from.card_name, sizeof(to.card_name));
}

} // namespace gaudi::kernel_double
