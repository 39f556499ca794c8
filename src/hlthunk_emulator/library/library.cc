/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of libhl-thunk.so above a driver, as the public one (v1.10) has
 * them: it repeats ioctls that were interrupted or are to be repeated, gives 0
 * and leaves errno where the result is a handle or an address, and -errno else.
 *
 * HLTHUNK_KERNEL names the header with the kernel below: the emulated one in
 * the drop-in, the one that runs in the tests' small library.
 */
#include HLTHUNK_KERNEL

#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_emulator/public.h"
#include "hlthunk_shim/abi/hlthunk.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>

using namespace gaudi;
using namespace gaudi::emu::driver;
using namespace gaudi::hlthunk;

namespace {

/* HLTHUNK_MAX_MINOR */
constexpr int card_limit = 256;

template <typename Arguments>
int call_driver(int fd, Arguments &arguments)
{
    int ret;
    do {
        ret = ask_kernel(fd, arguments);
    } while ((ret == -EINTR) || (ret == -EAGAIN));
    return ret;
}

template <typename Result>
int inform(int fd, info_op op, Result &result_p)
{
    info_args arguments{};
    arguments.pointer = reinterpret_cast<uint64_t>(&result_p);
    arguments.size    = sizeof(result_p);
    arguments.op      = op;
    return call_driver(fd, arguments);
}

int operate(int fd, const memory_in &in)
{
    memory_args arguments{in};
    return call_driver(fd, arguments);
}

/* Calls with a 64-bit result say 0 for failure and leave errno. */
uint64_t value_of(int fd, const memory_in &in)
{
    memory_args arguments{in};
    const int ret = call_driver(fd, arguments);
    errno         = (ret != 0) ? -ret : errno;
    return (ret != 0) ? 0 : arguments.out.value;
}

/* The same of command buffers. */
int operate(int fd, const command_buffer_in &in, uint64_t *value_p)
{
    command_buffer_args arguments{in};
    if (value_p == nullptr) {
        return -EINVAL;
    }
    const int ret = call_driver(fd, arguments);
    *value_p      = (ret == 0) ? arguments.out.value : *value_p;
    return ret;
}

/* By device and revision: get_asic_type of the vendor's habanalabs_drv.c. The
 * newest hlthunk.h that is public has no names for others. */
hlthunk_device_name name_of(int fd)
{
    hw_ip_info info{};
    if (inform(fd, info_hw_ip, info) != 0) {
        return HLTHUNK_DEVICE_INVALID;
    }
    switch (info.device_id << 8 | info.revision_id) {
    case 0x102001:
        return HLTHUNK_DEVICE_GAUDI2;
    case 0x102002:
        return HLTHUNK_DEVICE_GAUDI2B;
    case 0x102003:
        return HLTHUNK_DEVICE_GAUDI2C;
    case 0x102004:
        return HLTHUNK_DEVICE_GAUDI2D;
    case 0x106001:
        return HLTHUNK_DEVICE_GAUDI3;
    case 0x106004:
        return HLTHUNK_DEVICE_GAUDI3D;
    default:
        return HLTHUNK_DEVICE_INVALID;
    }
}

bool is_one(int fd, hlthunk_device_name name)
{
    return (name == HLTHUNK_DEVICE_DONT_CARE) || (name_of(fd) == name);
}

/* The first card for which a test of its control node says yes; -1: none. */
template <typename Test>
int find_card(Test &&test)
{
    for (int number = 0; number < card_limit; ++number) {
        const int fd = open_node(true, number);
        if (fd >= 0) {
            const bool found = test(number, fd);
            close_file(fd);
            if (found) {
                return number;
            }
        }
    }
    return -1;
}

int find_module(uint32_t module_id)
{
    return find_card([=](int, int fd) {
        hw_ip_info info{};
        return (inform(fd, info_hw_ip, info) == 0) &&
               (info.module_id == module_id);
    });
}

int open_by_bus_id(bool is_control, const char *bus_id)
{
    const int number = number_of(bus_id);
    return (number < 0) ? -EINVAL : open_node(is_control, number);
}

/* The first card of a kind that can be opened; -1, with errno. */
int open_by_name(bool is_control, hlthunk_device_name name)
{
    int opened = -ENOENT;
    (void)find_card([&](int number, int fd) {
        if (is_one(fd, name)) {
            opened = open_node(is_control, number);
        }
        return opened >= 0;
    });
    if (opened < 0) {
        errno = -opened;
        return -1;
    }
    return opened;
}

int export_dmabuf(int fd, uint64_t address, uint64_t size, uint64_t offset,
                  uint32_t flags)
{
    memory_args arguments{{.export_dmabuf = {address, size, offset},
                           .op            = memory_export,
                           .flags         = flags}};
    const int ret = call_driver(fd, arguments);
    return (ret != 0) ? ret : static_cast<int>(arguments.out.value);
}

} // namespace

/* --- opening -------------------------------------------------------------- */

HLTHUNK_PUBLIC int hlthunk_open(hlthunk_device_name name, const char *bus_id)
{
    return (bus_id != nullptr) ? open_by_bus_id(false, bus_id)
                               : open_by_name(false, name);
}

HLTHUNK_PUBLIC int hlthunk_open_by_module_id(uint32_t module_id)
{
    const int number = find_module(module_id);
    return (number < 0) ? -1 : open_node(false, number);
}

HLTHUNK_PUBLIC int hlthunk_open_control(int device_index, const char *bus_id)
{
    return (bus_id != nullptr) ? open_by_bus_id(true, bus_id)
                               : open_node(true, device_index);
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_name(hlthunk_device_name name,
                                                const char *bus_id)
{
    return (bus_id != nullptr) ? open_by_bus_id(true, bus_id)
                               : open_by_name(true, name);
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_bus_id(const char *bus_id)
{
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    const int number = number_of(bus_id);
    return (number < 0) ? -EBADF : open_node(true, number);
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_module_id(uint32_t module_id)
{
    const int number = find_module(module_id);
    return (number < 0) ? -EBADF : open_node(true, number);
}

HLTHUNK_PUBLIC int hlthunk_close(int fd)
{
    return close_file(fd);
}

/* --- what a card is ------------------------------------------------------- */

HLTHUNK_PUBLIC int hlthunk_get_device_count(hlthunk_device_name name)
{
    int count = 0;
    if ((name == HLTHUNK_DEVICE_INVALID) || (name < HLTHUNK_DEVICE_GOYA) ||
        (name > HLTHUNK_DEVICE_GAUDI3D)) {
        return -EINVAL;
    }
    (void)find_card([&](int, int fd) {
        count += is_one(fd, name) ? 1 : 0;
        return false;
    });
    return count;
}

HLTHUNK_PUBLIC uint32_t hlthunk_get_device_id_from_fd(int fd)
{
    hw_ip_info info{};
    return (inform(fd, info_hw_ip, info) == 0) ? info.device_id : 0;
}

HLTHUNK_PUBLIC hlthunk_device_name hlthunk_get_device_name_from_fd(int fd)
{
    return name_of(fd);
}

HLTHUNK_PUBLIC int hlthunk_get_pci_bus_id_from_fd(int fd, char *bus_id,
                                                  int length)
{
    std::string found;
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    const int ret = find_bus_id(fd, found);
    if ((ret != 0) || (length < 0)) {
        return (ret != 0) ? ret : -1;
    }
    /* Padded, and without a terminator if there is no room for it. */
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
        bus_id[i] = (i < found.size()) ? found[i] : '\0';
    }
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_device_index_from_pci_bus_id(const char *bus_id)
{
    return (bus_id == nullptr) ? -EINVAL : number_of(bus_id);
}

HLTHUNK_PUBLIC int hlthunk_get_hw_ip_info(int fd, hlthunk_hw_ip_info *info)
{
    hw_ip_info from{};
    if (info == nullptr) {
        return -EINVAL;
    }
    const int ret = inform(fd, info_hw_ip, from);
    if (ret != 0) {
        return ret;
    }
    *info = {};

#define COPY(_member) info->_member = from._member
    COPY(sram_base_address);
    COPY(dram_base_address);
    COPY(dram_size);
    COPY(sram_size);
    COPY(num_of_events);
    COPY(device_id);
    COPY(cpld_version);
    COPY(tpc_enabled_mask);
    COPY(dram_enabled);
    COPY(module_id);
    COPY(decoder_enabled_mask);
    COPY(mme_master_slave_mode);
    COPY(tpc_enabled_mask_ext);
    COPY(dram_page_size);
    COPY(first_available_interrupt_id);
    COPY(edma_enabled_mask);
    COPY(server_type);
    COPY(pdma_user_owned_ch_mask);
    COPY(number_of_user_interrupts);
    COPY(device_mem_alloc_default_page_size);
    COPY(nic_ports_mask);
    COPY(interposer_version);
    COPY(substrate_version);
    COPY(nic_ports_external_mask);
    COPY(mme_enabled_mask);
    COPY(odp_supported);
    COPY(security_enabled);
    COPY(revision_id);
    COPY(tpc_interrupt_id);
    COPY(engine_core_interrupt_reg_addr);
    COPY(rotator_enabled_mask);
    COPY(sched_arc_enabled_mask);
    COPY(reserved_dram_size);
#undef COPY
    static_assert(sizeof(info->cpucp_version) == sizeof(from.cpucp_version));
    static_assert(sizeof(info->card_name) == sizeof(from.card_name));
    std::memcpy(info->cpucp_version, from.cpucp_version,
                sizeof(from.cpucp_version));
    std::memcpy(info->card_name, from.card_name, sizeof(from.card_name));
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_dram_usage(int fd, hlthunk_dram_usage_info *info)
{
    dram_usage_info from{};
    const int ret =
        (info == nullptr) ? -EINVAL : inform(fd, info_dram_usage, from);
    if (ret == 0) {
        *info = {from.free, from.of_context};
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_get_device_status_info(int fd)
{
    device_status_info from{};
    const int ret = inform(fd, info_device_status, from);
    return (ret != 0) ? ret : static_cast<int>(from.status);
}

HLTHUNK_PUBLIC int hlthunk_get_open_stats(int fd,
                                          hlthunk_open_stats_info *open_stats)
{
    open_stats_info from{};
    const int ret =
        (open_stats == nullptr) ? -EINVAL : inform(fd, info_open_stats, from);
    if (ret == 0) {
        *open_stats = {from.open_counter, from.last_open_period_ms,
                       from.is_compute_ctx_active, from.compute_ctx_in_release,
                       0};
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_get_dev_memalloc_page_orders(int fd,
                                                        uint64_t *page_orders)
{
    page_sizes_info from{};
    const int ret =
        (page_orders == nullptr) ? -EINVAL : inform(fd, info_page_sizes, from);
    if (ret == 0) {
        *page_orders = from.bits;
    }
    return ret;
}

/* --- memory --------------------------------------------------------------- */

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size,
                                                    uint64_t page_size,
                                                    bool contiguous,
                                                    bool shared)
{
    return value_of(fd, {.alloc = {size, page_size},
                         .op    = memory_alloc,
                         .flags = (contiguous ? memory_flag_contiguous : 0) |
                                  (shared ? memory_flag_shared : 0)});
}

HLTHUNK_PUBLIC int hlthunk_device_memory_free(int fd, uint64_t handle)
{
    return operate(fd, {.free = {handle}, .op = memory_free});
}

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_map(int fd, uint64_t handle,
                                                  uint64_t hint_addr)
{
    return value_of(fd, {.map_device = {hint_addr, handle}, .op = memory_map});
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map_flags(int fd, void *host,
                                                      uint64_t hint_addr,
                                                      uint64_t size,
                                                      uint32_t flags)
{
    const auto address = reinterpret_cast<uint64_t>(host);
    return value_of(fd, {.map_host = {address, hint_addr, size},
                         .op       = memory_map,
                         .flags    = flags | memory_flag_userptr});
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map(int fd, void *host,
                                                uint64_t hint_addr,
                                                uint64_t size)
{
    return hlthunk_host_memory_map_flags(fd, host, hint_addr, size, 0);
}

HLTHUNK_PUBLIC int hlthunk_memory_unmap(int fd, uint64_t device_va)
{
    return operate(fd, {.unmap = {device_va}, .op = memory_unmap});
}

HLTHUNK_PUBLIC int hlthunk_device_mapped_memory_export_dmabuf_fd(
    int fd, uint64_t device_va, uint64_t size, uint64_t offset, uint32_t flags)
{
    return (flags != (O_RDWR | O_CLOEXEC))
               ? -EINVAL
               : export_dmabuf(fd, device_va, size, offset, flags);
}

/* Of cards without an MMU, whose addresses these are. */
HLTHUNK_PUBLIC int hlthunk_device_memory_export_dmabuf_fd(int fd,
                                                          uint64_t address,
                                                          uint64_t size,
                                                          uint32_t flags)
{
    return export_dmabuf(fd, address, size, 0, flags);
}

/* --- command buffers ------------------------------------------------------ */

HLTHUNK_PUBLIC int hlthunk_request_command_buffer(int fd, uint32_t size,
                                                  uint64_t *cb_handle)
{
    return operate(fd, {.op = command_buffer_create, .size = size}, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_request_mapped_command_buffer(int fd, uint32_t size,
                                                         uint64_t *cb_handle)
{
    return operate(fd,
                   {.op    = command_buffer_create,
                    .size  = size,
                    .flags = command_buffer_flag_map},
                   cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_get_mapped_cb_device_va_by_handle(int fd,
                                                             uint64_t cb_handle,
                                                             uint64_t *va)
{
    return operate(fd,
                   {.handle = cb_handle,
                    .op     = command_buffer_info,
                    .flags  = command_buffer_flag_address},
                   va);
}

HLTHUNK_PUBLIC int hlthunk_destroy_command_buffer(int fd, uint64_t cb_handle)
{
    uint64_t nothing;
    return operate(fd, {.handle = cb_handle, .op = command_buffer_destroy},
                   &nothing);
}

/* --- submissions ---------------------------------------------------------- */

HLTHUNK_PUBLIC int hlthunk_command_submission_timeout(int fd, hlthunk_cs_in *in,
                                                      hlthunk_cs_out *out,
                                                      uint32_t seconds)
{
    submit_args arguments{};
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    arguments.in.restore     = reinterpret_cast<uint64_t>(in->chunks_restore);
    arguments.in.execute     = reinterpret_cast<uint64_t>(in->chunks_execute);
    arguments.in.num_restore = in->num_chunks_restore;
    arguments.in.num_execute = in->num_chunks_execute;
    arguments.in.timeout     = seconds;
    arguments.in.flags       = in->flags;
    const int ret            = call_driver(fd, arguments);
    if (ret == 0) {
        out->seq    = arguments.out.seq;
        out->status = arguments.out.status;
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                              hlthunk_cs_out *out)
{
    return hlthunk_command_submission_timeout(fd, in, out, 0);
}

HLTHUNK_PUBLIC int hlthunk_cs_flush_pci_hbw_writes(int fd)
{
    submit_args arguments{};
    arguments.in.flags = cs_flag_flush;
    return call_driver(fd, arguments);
}

HLTHUNK_PUBLIC int hlthunk_wait_for_cs(int fd, uint64_t seq,
                                       uint64_t timeout_us, uint32_t *status)
{
    wait_args arguments{};
    if (status == nullptr) {
        return -EINVAL;
    }
    arguments.in.seq        = seq;
    arguments.in.timeout_us = timeout_us;
    const int ret           = call_driver(fd, arguments);
    *status                 = arguments.out.status; /* on errors, too */
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_wait_for_multi_cs(int fd,
                                             hlthunk_wait_multi_cs_in *in,
                                             hlthunk_wait_multi_cs_out *out)
{
    wait_args arguments{};
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    arguments.in.seq        = reinterpret_cast<uint64_t>(in->seq);
    arguments.in.timeout_us = in->timeout_us;
    arguments.in.flags      = wait_flag_multi;
    arguments.in.rest[0]    = in->seq_len;
    return call_driver(fd, arguments); /* which Gaudi2 never answers */
}

/* --- other ---------------------------------------------------------------- */

HLTHUNK_PUBLIC void *hlthunk_malloc(size_t size)
{
    return calloc(1, size);
}

HLTHUNK_PUBLIC char *hlthunk_get_version()
{
    auto *text = static_cast<char *>(hlthunk_malloc(sizeof(version)));
    return (text != nullptr) ? strcpy(text, version) : nullptr;
}

HLTHUNK_PUBLIC void hlthunk_free(void *memory)
{
    free(memory);
}
