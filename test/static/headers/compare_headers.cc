/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our declarations of hl-thunk's and of the driver's ABI beside the public
 * headers of somebody who has them (HLTHUNK_INCLUDE_DIR): it compiles if they
 * agree. What a header does not have, since it is older or newer, is compared
 * with itself: names that are not found in it are found outside of it.
 */
#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_shim/abi/hlthunk.h"

#include <concepts>
#include <cstdio>
#include <type_traits>

/* Before the headers below, which are in a namespace. */
#include <linux/types.h>
#if __has_include(<drm/drm.h>)
#include <drm/drm.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

namespace {

/* Types that pass the same: structures of both are compared by themselves. */
template <typename A, typename B>
constexpr bool alike = [] {
    if constexpr (std::same_as<A, B>) {
        return true;
    } else if constexpr (std::is_enum_v<A> || std::is_enum_v<B>) {
        return std::is_convertible_v<A, int> && std::is_convertible_v<B, int> &&
               (sizeof(A) == sizeof(B));
    } else {
        return std::is_class_v<A> && std::is_class_v<B>;
    }
}();
template <typename A, typename B>
constexpr bool alike<A *, B *> = alike<A, B>;
template <typename A, typename B, typename... As, typename... Bs>
constexpr bool alike<A(As...), B(Bs...)> = [] {
    if constexpr (sizeof...(As) == sizeof...(Bs)) {
        return alike<A, B> && (alike<As, Bs> && ...);
    }
    return false;
}();

/* A member that only one of two structures has is as good as the same. */
#define SAME_MEMBER(_ours, _theirs, _member)                                   \
    static_assert(                                                             \
        []<typename Ours, typename Theirs>(const Ours *, const Theirs *) {     \
            if constexpr (requires(Theirs it) { it._member; }) {               \
                return (offsetof(Ours, _member) ==                             \
                        offsetof(Theirs, _member)) &&                          \
                       (sizeof(Ours::_member) == sizeof(Theirs::_member));     \
            }                                                                  \
            return true;                                                       \
        }(static_cast<const _ours *>(nullptr),                                 \
          static_cast<const _theirs *>(nullptr)),                              \
        #_ours "::" #_member);                                                 \
    static_assert(__COUNTER__ >= 0);
#define SAME_SIZE(_ours, _theirs)                                              \
    static_assert(sizeof(_ours) == sizeof(_theirs), #_ours);                   \
    static_assert(__COUNTER__ >= 0);
#define SAME_VALUE(_ours, _theirs)                                             \
    static_assert(static_cast<uint64_t>(_ours) ==                              \
                      static_cast<uint64_t>(_theirs),                          \
                  #_theirs);                                                   \
    static_assert(__COUNTER__ >= 0);

} // namespace

namespace declared_here {

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _result _name _parameters;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL

namespace theirs {

#include <hlthunk.h>

constexpr int first_fact = __COUNTER__;

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    static_assert(alike<_result _parameters, decltype(_name)>, #_name);        \
    static_assert(alike<decltype(declared_here::_name), decltype(_name)>,      \
                  #_name);                                                     \
    static_assert(__COUNTER__ >= 0);
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL

#define DEVICE(_name)                                                          \
    SAME_VALUE(::HLTHUNK_DEVICE_##_name, HLTHUNK_DEVICE_##_name)
DEVICE(GOYA)
DEVICE(GAUDI)
DEVICE(INVALID)
DEVICE(DONT_CARE)
DEVICE(GAUDI2)
DEVICE(GAUDI_HL2000M)
DEVICE(GAUDI3)
DEVICE(GAUDI2B)
DEVICE(GAUDI2C)
DEVICE(GAUDI2D)

#define MEMBER(_member)                                                        \
    SAME_MEMBER(::hlthunk_hw_ip_info, hlthunk_hw_ip_info, _member)
SAME_SIZE(::hlthunk_hw_ip_info, hlthunk_hw_ip_info)
MEMBER(sram_base_address)
MEMBER(dram_base_address)
MEMBER(dram_size)
MEMBER(sram_size)
MEMBER(num_of_events)
MEMBER(device_id)
MEMBER(cpld_version)
MEMBER(psoc_pci_pll_nr)
MEMBER(psoc_pci_pll_div_factor)
MEMBER(tpc_enabled_mask)
MEMBER(dram_enabled)
MEMBER(cpucp_version)
MEMBER(module_id)
MEMBER(card_name)
MEMBER(decoder_enabled_mask)
MEMBER(mme_master_slave_mode)
MEMBER(tpc_enabled_mask_ext)
MEMBER(dram_page_size)
MEMBER(first_available_interrupt_id)
MEMBER(edma_enabled_mask)
MEMBER(server_type)
MEMBER(pdma_user_owned_ch_mask)
MEMBER(number_of_user_interrupts)
MEMBER(device_mem_alloc_default_page_size)
MEMBER(nic_ports_mask)
MEMBER(nic_ports_external_mask)
MEMBER(security_enabled)
MEMBER(revision_id)
MEMBER(tpc_interrupt_id)
MEMBER(engine_core_interrupt_reg_addr)
MEMBER(rotator_enabled_mask)
MEMBER(reserved_dram_size)
#undef MEMBER

#define MEMBER(_type, _member) SAME_MEMBER(::_type, _type, _member)
SAME_SIZE(::hlthunk_dram_usage_info, hlthunk_dram_usage_info)
MEMBER(hlthunk_dram_usage_info, dram_free_mem)
MEMBER(hlthunk_dram_usage_info, ctx_dram_mem)
SAME_SIZE(::hlthunk_open_stats_info, hlthunk_open_stats_info)
MEMBER(hlthunk_open_stats_info, open_counter)
MEMBER(hlthunk_open_stats_info, last_open_period_ms)
MEMBER(hlthunk_open_stats_info, is_compute_ctx_active)
MEMBER(hlthunk_open_stats_info, compute_ctx_in_release)
MEMBER(hlthunk_open_stats_info, compute_ctx_has_mapped_resources)
SAME_SIZE(::hlthunk_cs_in, hlthunk_cs_in)
MEMBER(hlthunk_cs_in, chunks_restore)
MEMBER(hlthunk_cs_in, chunks_execute)
MEMBER(hlthunk_cs_in, num_chunks_restore)
MEMBER(hlthunk_cs_in, num_chunks_execute)
MEMBER(hlthunk_cs_in, flags)
SAME_SIZE(::hlthunk_cs_out, hlthunk_cs_out)
MEMBER(hlthunk_cs_out, seq)
MEMBER(hlthunk_cs_out, status)
MEMBER(hlthunk_cs_out, sob_count_before_submission)
SAME_SIZE(::hlthunk_wait_multi_cs_in, hlthunk_wait_multi_cs_in)
MEMBER(hlthunk_wait_multi_cs_in, seq)
MEMBER(hlthunk_wait_multi_cs_in, timeout_us)
MEMBER(hlthunk_wait_multi_cs_in, seq_len)
SAME_SIZE(::hlthunk_wait_multi_cs_out, hlthunk_wait_multi_cs_out)
MEMBER(hlthunk_wait_multi_cs_out, status)
MEMBER(hlthunk_wait_multi_cs_out, seq_set)
MEMBER(hlthunk_wait_multi_cs_out, completed)
SAME_SIZE(::hl_cs_chunk, hl_cs_chunk)
MEMBER(hl_cs_chunk, cb_handle)
MEMBER(hl_cs_chunk, queue_index)
MEMBER(hl_cs_chunk, cb_size)
MEMBER(hl_cs_chunk, cs_chunk_flags)
MEMBER(hl_cs_chunk, collective_engine_id)
MEMBER(hl_cs_chunk, pad)
SAME_SIZE(::hl_mem_args, hl_mem_args)
MEMBER(hl_mem_args, in.op)
MEMBER(hl_mem_args, in.flags)
MEMBER(hl_mem_args, in.ctx_id)
MEMBER(hl_mem_args, in.num_of_elements)
MEMBER(hl_mem_args, out.device_virt_addr)
#undef MEMBER

SAME_VALUE(gaudi::shim::cs_completed, HL_WAIT_CS_STATUS_COMPLETED)
SAME_VALUE(gaudi::shim::cs_busy, HL_WAIT_CS_STATUS_BUSY)
SAME_VALUE(gaudi::shim::cs_timed_out, HL_WAIT_CS_STATUS_TIMEDOUT)
SAME_VALUE(gaudi::shim::cs_aborted, HL_WAIT_CS_STATUS_ABORTED)
SAME_VALUE(gaudi::shim::chunk_flag_user_cb, HL_CS_CHUNK_FLAGS_USER_ALLOC_CB)
SAME_VALUE(gaudi::shim::max_chunks_per_cs, HL_MAX_JOBS_PER_CS)
SAME_VALUE(gaudi::shim::gaudi2_queue_pdma0, GAUDI2_QUEUE_ID_PDMA_0_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_pdma1, GAUDI2_QUEUE_ID_PDMA_1_0)
#ifdef HL_MEM_OP_REG_DMABUF_FD
SAME_VALUE(gaudi::shim::memory_op_import, HL_MEM_OP_REG_DMABUF_FD)
#endif
#if defined(DRM_IOCTL_HL_MEMORY) && defined(DRM_IOWR)
SAME_VALUE(gaudi::shim::memory_ioctl, DRM_IOCTL_HL_MEMORY)
#elif !defined(DRM_IOCTL_HL_MEMORY)
SAME_VALUE(gaudi::shim::memory_ioctl_old, HL_IOCTL_MEMORY)
#endif

/* Of the emulated driver. */
SAME_VALUE(gaudi::emu::driver::argument_bytes[0], sizeof(hl_info_args))
SAME_VALUE(gaudi::emu::driver::argument_bytes[1], sizeof(hl_cb_args))
SAME_VALUE(gaudi::emu::driver::argument_bytes[2], sizeof(hl_cs_args))
SAME_VALUE(gaudi::emu::driver::argument_bytes[3], sizeof(hl_wait_cs_args))
SAME_VALUE(gaudi::emu::driver::argument_bytes[4], sizeof(hl_mem_args))
SAME_VALUE(gaudi::emu::driver::argument_bytes[5], sizeof(hl_debug_args))
SAME_VALUE(gaudi::emu::driver::info_hw_ip, HL_INFO_HW_IP_INFO)
SAME_VALUE(gaudi::emu::driver::info_dram_usage, HL_INFO_DRAM_USAGE)
SAME_VALUE(gaudi::emu::driver::info_device_status, HL_INFO_DEVICE_STATUS)
SAME_VALUE(gaudi::emu::driver::info_open_stats, HL_INFO_OPEN_STATS)
SAME_VALUE(gaudi::emu::driver::info_page_sizes,
           HL_INFO_DEV_MEM_ALLOC_PAGE_SIZES)
SAME_VALUE(gaudi::emu::driver::command_buffer_create, HL_CB_OP_CREATE)
SAME_VALUE(gaudi::emu::driver::command_buffer_destroy, HL_CB_OP_DESTROY)
SAME_VALUE(gaudi::emu::driver::command_buffer_info, HL_CB_OP_INFO)
SAME_VALUE(gaudi::emu::driver::command_buffer_flag_map, HL_CB_FLAGS_MAP)
SAME_VALUE(gaudi::emu::driver::command_buffer_flag_address,
           HL_CB_FLAGS_GET_DEVICE_VA)
SAME_VALUE(gaudi::emu::driver::memory_alloc, HL_MEM_OP_ALLOC)
SAME_VALUE(gaudi::emu::driver::memory_free, HL_MEM_OP_FREE)
SAME_VALUE(gaudi::emu::driver::memory_map, HL_MEM_OP_MAP)
SAME_VALUE(gaudi::emu::driver::memory_unmap, HL_MEM_OP_UNMAP)
SAME_VALUE(gaudi::emu::driver::memory_export, HL_MEM_OP_EXPORT_DMABUF_FD)
SAME_VALUE(gaudi::emu::driver::memory_flag_contiguous, HL_MEM_CONTIGUOUS)
SAME_VALUE(gaudi::emu::driver::memory_flag_shared, HL_MEM_SHARED)
SAME_VALUE(gaudi::emu::driver::memory_flag_userptr, HL_MEM_USERPTR)
SAME_VALUE(gaudi::emu::driver::memory_flag_force_hint, HL_MEM_FORCE_HINT)
SAME_VALUE(gaudi::emu::driver::cs_flag_staged, HL_CS_FLAGS_STAGED_SUBMISSION)
SAME_VALUE(gaudi::emu::driver::wait_flag_interrupt, HL_WAIT_CS_FLAGS_INTERRUPT)
SAME_VALUE(gaudi::emu::driver::wait_flag_multi, HL_WAIT_CS_FLAGS_MULTI_CS)
SAME_VALUE(gaudi::emu::driver::wait_out_gone, HL_WAIT_CS_STATUS_FLAG_GONE)
SAME_VALUE(gaudi::emu::queue_cpu, GAUDI2_QUEUE_ID_CPU_PQ)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[0], GAUDI2_QUEUE_ID_DCORE0_EDMA_0_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[1], GAUDI2_QUEUE_ID_DCORE0_EDMA_1_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[2], GAUDI2_QUEUE_ID_DCORE1_EDMA_0_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[3], GAUDI2_QUEUE_ID_DCORE1_EDMA_1_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[4], GAUDI2_QUEUE_ID_DCORE2_EDMA_0_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[5], GAUDI2_QUEUE_ID_DCORE2_EDMA_1_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[6], GAUDI2_QUEUE_ID_DCORE3_EDMA_0_0)
SAME_VALUE(gaudi::shim::gaudi2_queue_edma[7], GAUDI2_QUEUE_ID_DCORE3_EDMA_1_0)

#define MEMBER(_member)                                                        \
    SAME_MEMBER(gaudi::emu::driver::hw_ip_info, hl_info_hw_ip_info, _member)
MEMBER(sram_base_address)
MEMBER(dram_base_address)
MEMBER(dram_size)
MEMBER(sram_size)
MEMBER(num_of_events)
MEMBER(device_id)
MEMBER(module_id)
MEMBER(decoder_enabled_mask)
MEMBER(first_available_interrupt_id)
MEMBER(server_type)
MEMBER(cpld_version)
MEMBER(tpc_enabled_mask)
MEMBER(dram_enabled)
MEMBER(security_enabled)
MEMBER(mme_master_slave_mode)
MEMBER(cpucp_version)
MEMBER(card_name)
MEMBER(tpc_enabled_mask_ext)
MEMBER(dram_page_size)
MEMBER(edma_enabled_mask)
MEMBER(number_of_user_interrupts)
MEMBER(device_mem_alloc_default_page_size)
MEMBER(revision_id)
MEMBER(tpc_interrupt_id)
MEMBER(rotator_enabled_mask)
MEMBER(engine_core_interrupt_reg_addr)
MEMBER(reserved_dram_size)

constexpr int end_of_facts = __COUNTER__;

} // namespace theirs
} // namespace declared_here

int main()
{
    std::printf("%d facts agree\n", declared_here::theirs::end_of_facts -
                                        declared_here::theirs::first_fact - 1);
    return 0;
}
