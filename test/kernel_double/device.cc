/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel_double/device.h"

#include "hlthunk_emulator/api.h"
#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/settings.h"
#include "kernel_double/kernel.h"
#include "kernel_double/rules.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <linux/ioctl.h>
#include <unistd.h>

namespace gaudi::kernel_double {

thread_local int own_call::depth = 0;

node_of_card find_node(int fd, bool thorough)
{
    if (thorough) {
        const own_call own;
        (void)emu::find_any(fd);
    }
    const emu::device_file file = emu::device_file_at(fd);
    switch (file.kind) {
    case emu::file_of::compute:
        return {node::compute, file.card};
    case emu::file_of::control:
        return {node::control, file.card};
    case emu::file_of::inherited:
        return {node::inherited, file.card};
    default:
        return {};
    }
}

int open_node(node_of_card which, int flags)
{
    const own_call own;
    int fd = hlthunk_open_control(static_cast<int>(which.card), nullptr);
    if ((fd >= 0) && (which.kind == node::compute)) {
        char bus_id[shim::bus_id_size] = {};
        (void)hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
        hlthunk_close(fd);
        fd = hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id);
        if (fd >= 0) {
            begin_submissions(which.card);
        }
    }
    if ((fd >= 0) && ((flags & O_CLOEXEC) == 0)) {
        fcntl(fd, F_SETFD, 0);
    }
    return fd;
}

namespace {

/* copy_to_user, as much as the caller has room for. */
int give(const info_in &in, const void *data, size_t size)
{
    std::memcpy(reinterpret_cast<void *>(in.pointer), data,
                std::min<size_t>(size, in.size));
    return 0;
}

int inform(int fd, const info_in &in)
{
    if (the_kernel().is_drm && (in.pad != 0)) {
        return broken("info-padding", EINVAL, "pad is %u", in.pad);
    }
    if ((in.pointer == 0) || (in.size == 0)) {
        return broken("info-result", EINVAL, "%u bytes for op %u", in.size,
                      in.op);
    }
    switch (in.op) {
    case info_hw_ip: {
        hlthunk_hw_ip_info from{};
        const int ret = hlthunk_get_hw_ip_info(fd, &from);
        hw_ip_info to{};
        copy_facts(from, to);
        to.tpc_enabled_mask = static_cast<uint8_t>(from.tpc_enabled_mask_ext);
        return (ret != 0) ? ret : give(in, &to, the_kernel().hw_ip_bytes);
    }
    case info_dram_usage: {
        hlthunk_dram_usage_info from{};
        const int ret = hlthunk_get_dram_usage(fd, &from);
        const dram_usage_info to{from.dram_free_mem, from.ctx_dram_mem};
        return (ret != 0) ? ret : give(in, &to, sizeof(to));
    }
    case info_device_status: {
        const int status = hlthunk_get_device_status_info(fd);
        const device_status_info to{static_cast<uint32_t>(status), 0};
        return (status < 0) ? status : give(in, &to, sizeof(to));
    }
    case info_open_stats: {
        hlthunk_open_stats_info from{};
        const int ret = hlthunk_get_open_stats(fd, &from);
        const open_stats_info to{from.open_counter,
                                 from.last_open_period_ms,
                                 from.is_compute_ctx_active,
                                 from.compute_ctx_in_release,
                                 {}};
        return (ret != 0) ? ret : give(in, &to, sizeof(to));
    }
    default:
        /* No answer is better than a made-up one. */
        std::fprintf(stderr, "kernel-double: INFO op %u is not there\n", in.op);
        std::abort();
    }
}

template <typename In>
In take(const char *arguments)
{
    In in;
    std::memcpy(&in, arguments, sizeof(in));
    return in;
}

/* In the place of what was asked. */
template <typename In, typename Out>
void put(char *arguments, const Out &result)
{
    std::memset(arguments, 0, sizeof(In));
    std::memcpy(arguments, &result, sizeof(result));
}

template <typename In, typename Out>
int reply(int (*call)(int, unsigned, const In &, Out &, bool &), int fd,
          unsigned card, char *arguments)
{
    Out out{};
    bool keep     = false;
    const int ret = call(fd, card, take<In>(arguments), out, keep);
    if (!keep) {
        put<In>(arguments, out);
    }
    return ret;
}

/* A call on the arguments as they are in the kernel's copy, which goes back to
 * the caller also when the call fails. */
int dispatch(call which, int fd, node_of_card of, char *arguments)
{
    if (which == call::info) {
        return inform(fd, take<info_in>(arguments));
    }
    switch (which) {
    case call::submit:
        return reply(submit, fd, of.card, arguments);
    case call::wait:
        return reply(wait, fd, of.card, arguments);
    case call::memory: {
        memory_out out{};
        const int ret = memory(fd, take<memory_in>(arguments), out.value);
        put<memory_in>(arguments, out);
        return ret;
    }
    default:
        std::fprintf(stderr, "kernel-double: ioctl %u is not there\n",
                     static_cast<unsigned>(which));
        std::abort();
    }
}

} // namespace

int control_node(int fd, node_of_card of, unsigned long request, void *argument)
{
    const own_call own;
    const unsigned number = _IOC_NR(request);
    const unsigned first =
        the_kernel().is_drm ? first_drm_number : first_old_number;
    const bool known = (number >= first) && (number < first + call_count);
    if (!known) {
        /* Drivers are asked by their new number first. */
        const bool probe =
            !the_kernel().is_drm && (request == shim::memory_ioctl);
        /* DRM has calls of its own below the drivers', which say so, too, of
         * structures that are not theirs. */
        const int error = (the_kernel().is_drm && (number < first) &&
                           (of.kind != node::control))
                              ? EINVAL
                              : ENOTTY;
        return probe ? -ENOTTY
                     : broken("ioctl-number", error, "%#lx on Linux %s",
                              request, the_kernel().release);
    }
    const auto which = static_cast<call>(number - first);
    if ((of.kind == node::control) && (which != call::info)) {
        return broken("control-node", ENOTTY, "ioctl %#lx", request);
    }
    if (argument == nullptr) {
        return broken("ioctl-pointer", EFAULT, "ioctl %#lx", request);
    }

    alignas(8) char arguments[max_argument_bytes] = {};
    const size_t size = std::min<size_t>(_IOC_SIZE(request), sizeof(arguments));
    if (size != argument_bytes[static_cast<unsigned>(which)]) {
        (void)broken("ioctl-size", 0, "%#lx has %zu bytes", request, size);
    }
    std::memcpy(arguments, argument, size);
    const int ret = (of.kind == node::inherited)
                        ? -ENODEV /* the emulator cannot do more */
                        : dispatch(which, fd, of, arguments);
    std::memcpy(argument, arguments, size);
    return ret;
}

} // namespace gaudi::kernel_double
