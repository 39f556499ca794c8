/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of an open card. */
#include "hlthunk_emulator/api.h"
#include "kernel_double/device.h"
#include "kernel_double/kernel.h"
#include "kernel_double/rules.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::kernel_double {

namespace {

/* What a function that gives 0 for failure says. */
int result_of(uint64_t value)
{
    return (value != 0) ? 0 : ((errno != 0) ? -errno : -ENOMEM);
}

/* No correct program gets this answer. */
int judge(int ret, const char *rule, uint64_t asked)
{
    return (ret == -EINVAL) ? broken(rule, EINVAL, "%#lx", asked) : ret;
}

int map(int fd, const memory_in &in, uint64_t &value_p)
{
    errno = 0;
    if ((in.flags & memory_flag_userptr) != 0) {
        value_p = hlthunk_host_memory_map(
            fd, reinterpret_cast<void *>(in.map_host.address), in.map_host.hint,
            in.map_host.size);
        return judge(result_of(value_p), "host-size", in.map_host.size);
    }
    const uint64_t handle = static_cast<uint32_t>(in.map_device.handle);
    value_p = hlthunk_device_memory_map(fd, handle, in.map_device.hint);
    return judge(result_of(value_p), "map-handle", handle);
}

/* Refused while exported: callers try, since nothing else tells. */
int unmap(int fd, uint64_t address)
{
    const int ret        = hlthunk_memory_unmap(fd, address);
    const auto is_mapped = [address](emu::software_card::context &card,
                                     emu::card_lock &) {
        return (card.table.find(address) != nullptr) ? 1 : 0;
    };
    return ((ret == -EINVAL) && (emu::on_open(fd, {}, is_mapped) == 0))
               ? broken("unmap-address", EINVAL, "%#lx", address)
               : ret;
}

int export_dmabuf(int fd, const memory_in &in, uint64_t &value_p)
{
    const auto &asked = in.export_dmabuf;
    value_p           = static_cast<uint32_t>(-EBADF);
    if (!the_kernel().exports) {
        return -EOPNOTSUPP;
    }
    const auto from = [&](uint64_t offset) {
        return hlthunk_device_mapped_memory_export_dmabuf_fd(
            fd, asked.address, asked.size, offset, O_RDWR | O_CLOEXEC);
    };
    int ret = from(asked.offset);
    if ((ret >= 0) && (asked.offset != 0) && !the_kernel().is_drm) {
        /* Until 6.7 hl_map_dmabuf takes no notice of it. */
        close(ret);
        ret = from(0);
    }
    if (ret < 0) {
        return judge(ret, "export-range", asked.address + asked.offset);
    }
    value_p = static_cast<uint32_t>(ret);
    if ((in.flags & O_CLOEXEC) == 0) {
        fcntl(ret, F_SETFD, 0);
    }
    return 0;
}

int import(int fd, const memory_in &in, uint64_t &value_p)
{
    hl_mem_args arguments{};
    arguments.in.fd     = in.import.fd;
    arguments.in.length = in.import.length;
    arguments.in.op     = shim::memory_op_import;
    if (hlthunk_sys_ioctl(fd, shim::memory_ioctl, &arguments) != 0) {
        return -errno;
    }
    value_p = arguments.out.device_virt_addr;
    return 0;
}

} // namespace

int memory(int fd, const memory_in &in, uint64_t &value_p)
{
    switch (in.op) {
    case memory_alloc:
        if (in.alloc.size == 0) {
            return broken("allocation-size", EINVAL, "0 bytes");
        }
        errno   = 0;
        value_p = hlthunk_device_memory_alloc(
            fd, in.alloc.size, in.alloc.page_size,
            (in.flags & memory_flag_contiguous) != 0,
            (in.flags & memory_flag_shared) != 0);
        return result_of(value_p);
    case memory_free: {
        const uint64_t handle = static_cast<uint32_t>(in.free.handle);
        return judge(hlthunk_device_memory_free(fd, handle), "free-handle",
                     handle);
    }
    case memory_map:
        return map(fd, in, value_p);
    case memory_unmap:
        return unmap(fd, in.unmap.address);
    case memory_export:
        return export_dmabuf(fd, in, value_p);
    case memory_import:
        return import(fd, in, value_p);
    default:
        return broken("memory-op", EINVAL, "op %u", in.op);
    }
}

} // namespace gaudi::kernel_double
