/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and command buffers of an open card. */
#include "kernel_double/device.h"
#include "kernel_double/kernel.h"
#include "kernel_double/rules.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
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

/* Whether anything is mapped at an address. */
bool is_mapped(const void *address)
{
    const auto wanted = reinterpret_cast<uint64_t>(address);
    bool found        = false;
    FILE *maps        = std::fopen("/proc/self/maps", "re");
    char line[512];
    while ((maps != nullptr) && !found &&
           (std::fgets(line, sizeof(line), maps) != nullptr)) {
        unsigned long start;
        unsigned long end;
        found = (std::sscanf(line, "%lx-%lx", &start, &end) == 2) &&
                (start <= wanted) && (wanted < end);
    }
    if (maps != nullptr) {
        std::fclose(maps);
    }
    return found;
}

} // namespace

int context::command_buffer(int fd, command_buffer_in in, uint64_t &value_p)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    const uint64_t handle = in.handle & ~mmap_type_mask;
    int ret               = 0;
    switch (in.op) {
    case cb_create:
        if (in.size > max_cb_bytes) {
            return broken("command-buffer-size", EINVAL, "%u bytes", in.size);
        }
        ret = ((in.flags & cb_flag_map) != 0)
                  ? hlthunk_request_mapped_command_buffer(fd, in.size, &value_p)
                  : hlthunk_request_command_buffer(fd, in.size, &value_p);
        if (ret == 0) {
            buffers_[value_p] = {
                std::max(page, util::round_up(uint64_t{in.size}, page))};
            value_p |= mmap_type_cb;
        }
        return ret;
    case cb_destroy:
    case cb_info:
        if (((in.handle & mmap_type_mask) != mmap_type_cb) ||
            !buffers_.contains(handle)) {
            return broken("command-buffer-handle", EINVAL, "%#lx", in.handle);
        }
        if (in.op == cb_destroy) {
            buffers_.erase(handle);
            return hlthunk_destroy_command_buffer(fd, handle);
        }
        if ((in.flags & cb_flag_get_device_va) == 0) {
            value_p = 0; /* submissions that use it now */
            return 0;
        }
        ret = hlthunk_get_mapped_cb_device_va_by_handle(fd, handle, &value_p);
        return (ret == -EINVAL)
                   ? broken("command-buffer-address", EINVAL,
                            "%#lx is not mapped for the card", in.handle)
                   : ret;
    default:
        return broken("command-buffer-op", EINVAL, "op %u", in.op);
    }
}

int context::find_command_buffer(uint64_t offset, size_t length,
                                 off_t &offset_p)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    if ((offset & mmap_type_mask) != mmap_type_cb) {
        return broken("mmap-type", EINVAL, "offset %#lx", offset);
    }
    const auto found = buffers_.find(offset & ~mmap_type_mask);
    if (found == buffers_.end()) {
        return broken("mmap-handle", EINVAL, "offset %#lx", offset);
    }
    if (util::round_up(uint64_t{length}, page) != found->second.bytes) {
        return broken("mmap-length", EINVAL, "%zu bytes of %lu", length,
                      found->second.bytes);
    }
    if ((found->second.mapped != nullptr) && is_mapped(found->second.mapped)) {
        return broken("mmap-twice", EINVAL, "offset %#lx", offset);
    }
    offset_p = static_cast<off_t>(found->first);
    return 0;
}

void context::note_mapping(uint64_t offset, const void *address)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    const auto found = buffers_.find(offset & ~mmap_type_mask);
    if (found != buffers_.end()) {
        found->second.mapped = address;
    }
}

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
