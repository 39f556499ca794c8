/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What passes between a process and the habanalabs driver: numbers and
 * structures of its ioctls.
 *
 * Sizes, offsets and values are those of Linux 6.12
 * `include/uapi/drm/habanalabs_accel.h` and of 6.1 `include/uapi/misc/
 * habanalabs.h`, which agree but for the end of hw_ip_info; the import (99) and
 * the members of hw_ip_info that are marked with V are in the vendor's headers
 * only (HabanaAI/Intel_Gaudi3_Software, HabanaAI/HCL). Names are ours.
 */
#pragma once

#include <cstddef>
#include <cstdint>

namespace gaudi::emu::driver {

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

struct info_args {
    uint64_t pointer;
    uint32_t size;
    uint32_t op;
    uint32_t variant;
    uint32_t pad;
};
static_assert(sizeof(info_args) == 24);
static_assert(offsetof(info_args, op) == 12);

enum info_op : uint32_t {
    info_hw_ip         = 0,
    info_dram_usage    = 2,
    info_device_status = 4,
    info_open_stats    = 18,
    info_page_sizes    = 26
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
    uint8_t interposer_version;       /**< V */
    uint8_t substrate_version;        /**< V */
    uint64_t pdma_user_owned_ch_mask; /**< V */
    uint64_t device_mem_alloc_default_page_size;
    uint64_t nic_ports_mask;          /**< V */
    uint64_t nic_ports_external_mask; /**< V */
    uint32_t mme_enabled_mask;        /**< V */
    uint8_t odp_supported;            /**< V */
    uint8_t revision_id;
    uint16_t tpc_interrupt_id;
    uint32_t rotator_enabled_mask;
    uint32_t sched_arc_enabled_mask; /**< V */
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

/** A bit for each size of pages that device memory may be asked for in; none:
 *  there is one size. */
struct page_sizes_info {
    uint64_t bits;
};

struct command_buffer_in {
    uint64_t handle = 0;
    uint32_t op     = 0;
    uint32_t size   = 0;
    uint32_t ctx_id = 0;
    uint32_t flags  = 0;
};
static_assert(sizeof(command_buffer_in) == 24);
static_assert(offsetof(command_buffer_in, op) == 8);

/** A handle, a device address, or in its low half how often it is in use. */
struct command_buffer_out {
    uint64_t value;
};

union command_buffer_args {
    command_buffer_in in;
    command_buffer_out out;
};

enum command_buffer_op : uint32_t {
    command_buffer_create  = 0,
    command_buffer_destroy = 1,
    command_buffer_info    = 2
};
/** To map what is created; to ask for the address. */
inline constexpr uint32_t command_buffer_flag_map     = 1;
inline constexpr uint32_t command_buffer_flag_address = 2;

struct submit_in {
    uint64_t restore;
    uint64_t execute;
    uint64_t seq;
    uint32_t num_restore;
    uint32_t num_execute;
    uint32_t timeout;
    uint32_t flags;
    uint32_t ctx_id;
    uint32_t pad; /**< four bytes there */
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

union submit_args {
    submit_in in;
    submit_out out;
};

/** SIGNAL, WAIT, COLLECTIVE_WAIT, ENCAP, RESERVE, UNRESERVE, ENGINE_CORE,
 *  FLUSH, ENGINES: each makes a submission something else. */
inline constexpr uint32_t cs_flags_of_other_types =
    0x2 | 0x4 | 0x8 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000;
inline constexpr uint32_t cs_flag_force_restore = 0x1;
inline constexpr uint32_t cs_flag_staged  = 0x40; /**< the others of these: */
inline constexpr uint32_t cs_flags_staged = 0x40 | 0x80 | 0x100;
inline constexpr uint32_t cs_flag_flush   = 0x8000; /**< of posted writes */

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

union wait_args {
    wait_in in;
    wait_out out;
};

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
    uint32_t op              = 0;
    uint32_t flags           = 0;
    uint32_t ctx_id          = 0;
    uint32_t num_of_elements = 0;
};
static_assert(sizeof(memory_in) == 40);
static_assert(offsetof(memory_in, op) == 24);

/** A handle, a device address, or a descriptor in its low half. */
struct memory_out {
    uint64_t value;
    uint64_t more;
};

union memory_args {
    memory_in in;
    memory_out out;
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

/** Which call takes these arguments. */
template <typename Arguments>
inline constexpr call call_with = call::debug;
template <>
inline constexpr call call_with<info_args> = call::info;
template <>
inline constexpr call call_with<command_buffer_args> = call::command_buffer;
template <>
inline constexpr call call_with<submit_args> = call::submit;
template <>
inline constexpr call call_with<wait_args> = call::wait;
template <>
inline constexpr call call_with<memory_args> = call::memory;
static_assert(sizeof(submit_args) == argument_bytes[2]);
static_assert(sizeof(wait_args) == argument_bytes[3]);
static_assert(sizeof(memory_args) == argument_bytes[4]);

} // namespace gaudi::emu::driver
