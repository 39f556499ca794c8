/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/dmabuf.h"

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/addresses.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace gaudi::base {

namespace {

/* Imports on different cards get the same addresses. One that is in use is held
 * while another is asked for, at most so many times. */
constexpr size_t max_detours = 256;

struct imported_memory final : device_memory {
    shim::registration import; /* of the whole dma-buf */
};

ucs_status_t dmabuf_status(int result)
{
    return (result == -EBADF) ? UCS_ERR_INVALID_PARAM : to_status(result);
}

/* How much of a dma-buf there is. One that does not tell counts as what is
 * wanted of it, in whole pages. */
ucs_status_t check_range(const card &importer, int fd, size_t offset,
                         size_t length, uint64_t &size_p)
{
    const int64_t size = importer.device().dmabuf_size(fd);
    if (size < 0) {
        ucs_error("%s: file descriptor %d cannot be imported: %s",
                  importer.name().c_str(), fd,
                  std::strerror(static_cast<int>(-size)));
        return UCS_ERR_INVALID_PARAM;
    }
    size_p = (size > 0) ? static_cast<uint64_t>(size)
                        : util::round_up(offset + length, shim::dmabuf_page());
    if ((length == 0) || (offset > size_p) || (length > size_p - offset)) {
        ucs_error("%s: %zu bytes at offset %zu are not in a dma-buf of %lu "
                  "bytes",
                  importer.name().c_str(), length, offset, size_p);
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

/* The pages of a range, or the whole block where the driver exports no parts.
 * offset_p  Of the range in the dma-buf. */
int export_from(const device_backing &block, uint64_t start, size_t length,
                int &fd_p, uint64_t &offset_p)
{
    const shim::card &device = block.owner.device();
    const uint64_t page      = shim::dmabuf_page();
    if (block.exports_parts()) {
        offset_p = start % page;
        return device.export_dmabuf(block.va, start - offset_p - block.va,
                                    util::round_up(offset_p + length, page),
                                    fd_p);
    }
    offset_p = start - block.va;
    return device.export_dmabuf(block.va, 0, block.size, fd_p);
}

} // namespace

ucs_status_t export_dmabuf(const void *address, size_t length, bool quiet,
                           int &fd_p, size_t &offset_p)
{
    const auto start      = reinterpret_cast<uintptr_t>(address);
    device_memory *memory = nullptr;
    memory_map &map       = memory_map::instance();
    if ((length > 0) && (length <= UINT64_MAX - start)) {
        memory = quiet ? map.register_device(address, length)
                       : map.hold_device(address, length);
    }
    if (memory == nullptr) {
        const refusal why = map.why_not(address, length);
        ucs_log(failure_level(quiet),
                "gaudi: cannot export %zu bytes at %p: they %s", length,
                address, why.text);
        return why.status;
    }

    int ret         = -EOPNOTSUPP;
    uint64_t offset = 0;
    if (memory->backing != nullptr) {
        ret = export_from(*memory->backing, start, length, fd_p, offset);
    }
    if (ret == 0) {
        memory->exported = true;
        offset_p         = offset;
    } else {
        ucs_log(failure_level(quiet), "%s: cannot export %zu bytes at %p: %s",
                memory->owner->name().c_str(), length, address,
                memory->imported ? "they are imported" : std::strerror(-ret));
    }
    map.deregister_device(memory);
    return dmabuf_status(ret);
}

ucs_status_t import_dmabuf(card &importer, int fd, size_t offset, size_t length,
                           void *&address_p)
{
    uint64_t size       = 0;
    ucs_status_t status = check_range(importer, fd, offset, length, size);
    if (status != UCS_OK) {
        return status;
    }

    auto memory      = std::make_unique<imported_memory>();
    memory->owner    = &importer;
    memory->cards    = importer.hold();
    memory->imported = true;
    std::vector<shim::registration> detours;
    for (bool entered = false; !entered;) {
        if (memory->import.address() != 0) {
            detours.push_back(std::move(memory->import));
        }
        const int ret =
            (detours.size() == max_detours)
                ? -ENOMEM
                : importer.device().import_dmabuf(fd, size, memory->import);
        if (ret != 0) {
            const char *why = std::strerror(-ret);
            if (ret == -EOPNOTSUPP) {
                why = "the driver cannot import dma-bufs";
            } else if (detours.size() == max_detours) {
                why = "other cards have imports at all addresses that the "
                      "driver offers";
            }
            ucs_error("%s: file descriptor %d cannot be imported as a dma-buf "
                      "of %lu bytes: %s",
                      importer.name().c_str(), fd, size, why);
            return dmabuf_status(ret);
        }
        memory->start = memory->import.address() + offset;
        memory->end   = memory->start + length;
        entered       = memory_map::instance().add(*memory);
    }
    address_p = reinterpret_cast<void *>(memory.release()->start);
    announce_allocation(address_p, length);
    return UCS_OK;
}

ucs_status_t release_import(const void *address)
{
    memory_map &map       = memory_map::instance();
    device_memory *memory = map.take_import(address);
    if (memory == nullptr) {
        ucs_error("gaudi: %p cannot be released: no import gave this address",
                  address);
        return UCS_ERR_INVALID_ADDR;
    }
    map.announce_gone(memory->start, memory->end);
    map.end(*memory);
    return UCS_OK;
}

} // namespace gaudi::base
