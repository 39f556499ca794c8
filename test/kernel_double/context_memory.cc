/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of an open card. */
#include "kernel_double/device.h"
#include "kernel_double/kernel.h"
#include "kernel_double/rules.h"

#include <cerrno>
#include <mutex>

#include <fcntl.h>

namespace gaudi::kernel_double {

namespace {

constexpr uint64_t page = 4096;

/* errno of a function that gives 0 for failure. */
int error_of(uint64_t value)
{
    return (value != 0) ? 0 : ((errno != 0) ? -errno : -ENOMEM);
}

} // namespace

int context::allocate(int fd, const memory_in &in, uint64_t &value_p)
{
    if (in.alloc.size == 0) {
        return broken("allocation-size", EINVAL, "0 bytes");
    }
    errno = 0;
    value_p =
        hlthunk_device_memory_alloc(fd, in.alloc.size, in.alloc.page_size,
                                    (in.flags & memory_flag_contiguous) != 0,
                                    (in.flags & memory_flag_shared) != 0);
    const int ret = error_of(value_p);
    if (ret == 0) {
        allocations_[value_p] = {in.alloc.size};
    }
    return ret;
}

int context::free(int fd, const memory_in &in)
{
    const uint64_t handle = static_cast<uint32_t>(in.free.handle);
    const auto found      = allocations_.find(handle);
    if (found == allocations_.end()) {
        return broken("free-handle", EINVAL, "%lu", in.free.handle);
    }
    if (found->second.mappings > 0) {
        return broken("free-mapped", EINVAL, "%lu", in.free.handle);
    }
    const int ret = hlthunk_device_memory_free(fd, handle);
    if (ret == 0) {
        allocations_.erase(found);
    }
    return ret;
}

int context::map(int fd, const memory_in &in, uint64_t &value_p)
{
    errno = 0;
    if ((in.flags & memory_flag_userptr) != 0) {
        if ((in.map_host.size == 0) ||
            (in.map_host.address + in.map_host.size < in.map_host.address)) {
            return broken("host-size", EINVAL, "%lu bytes", in.map_host.size);
        }
        value_p = hlthunk_host_memory_map(
            fd, reinterpret_cast<void *>(in.map_host.address), in.map_host.hint,
            in.map_host.size);
        if (value_p != 0) {
            mappings_[value_p] = {mapping::host, in.map_host.size, 0};
        }
        return error_of(value_p);
    }
    const uint64_t handle = static_cast<uint32_t>(in.map_device.handle);
    const auto found      = allocations_.find(handle);
    if (found == allocations_.end()) {
        return broken("map-handle", EINVAL, "%lu", in.map_device.handle);
    }
    /* Hints outside of the range are as good as none. */
    const uint64_t hint =
        (in.map_device.hint < device_va_end - found->second.bytes)
            ? in.map_device.hint
            : 0;
    value_p = hlthunk_device_memory_map(fd, handle, hint);
    if (value_p != 0) {
        ++found->second.mappings;
        mappings_[value_p] = {mapping::device, found->second.bytes, handle};
    }
    return error_of(value_p);
}

int context::unmap(int fd, const memory_in &in)
{
    const auto found = mappings_.find(in.unmap.address);
    if (found == mappings_.end()) {
        return broken("unmap-address", EINVAL, "%#lx", in.unmap.address);
    }
    /* Refused while exported: callers try, since nothing else tells. */
    const int ret = hlthunk_memory_unmap(fd, in.unmap.address);
    if (ret == 0) {
        if (found->second.kind == mapping::device) {
            --allocations_[found->second.handle].mappings;
        }
        mappings_.erase(found);
    }
    return ret;
}

int context::export_dmabuf(int fd, const memory_in &in, uint64_t &value_p)
{
    const auto &asked = in.export_dmabuf;
    value_p           = static_cast<uint32_t>(-EBADF);
    if (!the_kernel().exports) {
        return -EOPNOTSUPP;
    }
    const auto found = mappings_.find(asked.address);
    if ((found == mappings_.end()) || (found->second.kind != mapping::device)) {
        return broken("export-address", EINVAL, "%#lx", asked.address);
    }
    if ((asked.size == 0) ||
        ((asked.address | asked.size | asked.offset) % page != 0)) {
        return broken("export-pages", EINVAL, "%lu bytes at %lu", asked.size,
                      asked.offset);
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
    if (ret >= 0) {
        value_p = static_cast<uint32_t>(ret);
        if ((in.flags & O_CLOEXEC) == 0) {
            fcntl(ret, F_SETFD, 0);
        }
        return 0;
    }
    return (ret == -EINVAL) ? broken("export-range", EINVAL, "%lu bytes at %lu",
                                     asked.size, asked.offset)
                            : ret;
}

int context::import(int fd, const memory_in &in, uint64_t &value_p)
{
    hl_mem_args arguments{};
    arguments.in.fd     = in.import.fd;
    arguments.in.length = in.import.length;
    arguments.in.op     = shim::memory_op_import;
    if (hlthunk_sys_ioctl(fd, shim::memory_ioctl, &arguments) != 0) {
        return -errno;
    }
    value_p            = arguments.out.device_virt_addr;
    mappings_[value_p] = {mapping::import, in.import.length, 0};
    return 0;
}

int context::memory(int fd, const memory_in &in, uint64_t &value_p)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    switch (in.op) {
    case memory_alloc:
        return allocate(fd, in, value_p);
    case memory_free:
        return free(fd, in);
    case memory_map:
        return map(fd, in, value_p);
    case memory_unmap:
        return unmap(fd, in);
    case memory_export:
        return export_dmabuf(fd, in, value_p);
    case memory_import:
        return import(fd, in, value_p);
    default:
        return broken("memory-op", EINVAL, "op %u", in.op);
    }
}

} // namespace gaudi::kernel_double
