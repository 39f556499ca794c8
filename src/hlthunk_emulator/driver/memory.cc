/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a card, what it maps of the host, and dma-bufs: hl_mem_ioctl of
 * memory.c. */
#include "hlthunk_emulator/driver/ioctl.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/settings.h"
#include "util/addresses.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

namespace gaudi::emu::driver {

namespace {

using context = software_card::context;

/* Where the addresses of programs end. */
constexpr uint64_t user_address_end = uint64_t{1} << 47;

/* --- device memory ---------------------------------------------------------*/

int allocate(context &card, const memory_in &in, uint64_t &handle_p)
{
    const uint64_t size = in.alloc.size;
    const uint64_t page = in.alloc.page_size;
    if (size == 0) {
        return broken("allocation-size", EINVAL, "%s: an allocation of 0 bytes",
                      card.name);
    }
    /* Who may not choose a page size is not asked for one. */
    if (get_settings().kind->user_page_size && (page != 0) &&
        (page != get_settings().dram_page)) {
        log("%s: pages of %lu bytes wanted, they have %lu", card.name, page,
            get_settings().dram_page);
        return -EINVAL;
    }
    handle_p = card.memory.allocate(size);
    if (handle_p == 0) {
        log("%s: %lu bytes of device memory wanted, %lu free", card.name, size,
            card.memory.free_bytes());
        return -ENOMEM;
    }
    ++card.totals.allocations;
    card.show_free_memory();
    return 0;
}

int free(context &card, uint64_t handle)
{
    const hbm_allocation *allocation = card.memory.find(handle);
    if ((allocation == nullptr) || (allocation->mappings > 0)) {
        return broken("free-handle", EINVAL,
                      "%s: free of handle %lu, which is "
                      "%s",
                      card.name, handle,
                      (allocation == nullptr) ? "unknown" : "mapped");
    }
    card.memory.free(handle);
    --card.totals.allocations;
    card.show_free_memory();
    return 0;
}

/* --- mappings --------------------------------------------------------------*/

/* A card was to map something; 0: there is no address for it. */
int count_mapping(context &card, uint64_t address)
{
    card.totals.mappings += (address != 0) ? 1 : 0;
    return (address != 0) ? 0 : -ENOMEM;
}

int map_device(context &card, const memory_in &in, uint64_t &address_p)
{
    const uint64_t handle      = static_cast<uint32_t>(in.map_device.handle);
    hbm_allocation *allocation = card.memory.find(handle);
    if (allocation == nullptr) {
        return broken("map-handle", EINVAL, "%s: map of unknown handle %lu",
                      card.name, handle);
    }
    address_p = card.table.map_device(handle, *allocation, in.map_device.hint);
    return count_mapping(card, address_p);
}

/* Have pages present and writable. @return Whether they are. */
bool populate(uint64_t start, uint64_t end)
{
    if (madvise(reinterpret_cast<void *>(start), end - start,
                MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    /* EINVAL: a kernel without the advice, or a mapping without write access,
     * of which the former is the case if it knows none at all. */
    return (errno == EINVAL) &&
           (madvise(nullptr, 0, MADV_POPULATE_WRITE) != 0) &&
           (msync(reinterpret_cast<void *>(start), end - start, MS_ASYNC) == 0);
}

/* Pin pages as the driver of Linux 6.12 does: -EFAULT when the first one is not
 * there and writable, -ENOMEM when that is so of another one. (The driver of
 * Linux 6.1 says -EFAULT then, too.) */
int pin(uint64_t address, uint64_t size)
{
    const uint64_t start = address / host_page * host_page;
    const uint64_t end   = util::round_up(address + size, host_page);

    if (end > user_address_end) {
        return -EFAULT;
    }
    if (populate(start, end)) {
        return 0;
    }
    return populate(start, start + host_page) ? -ENOMEM : -EFAULT;
}

int map_host(software_card &of, const memory_in &in, uint64_t &address_p)
{
    const auto [address, hint, size] = in.map_host;
    if ((size == 0) || (address + size < address) ||
        (address + size > UINT64_MAX - host_page)) {
        return broken("host-size", EINVAL,
                      "accel%u: map of %lu bytes of host memory at %#lx",
                      of.index(), size, address);
    }
    int ret = of.begin(faulty_call::map);
    if (ret != 0) {
        return ret;
    }
    ret = pin(address, size);
    if (ret != 0) {
        log("accel%u: host memory %#lx of %lu bytes is not all there and "
            "writable",
            of.index(), address, size);
        return ret;
    }
    return of.with_open({}, [&, hint = hint, size = size,
                             address = address](context &card, card_lock &) {
        address_p =
            card.table.map_host(reinterpret_cast<void *>(address), size, hint,
                                (in.flags & memory_flag_force_hint) != 0);
        card.totals.host_maps += (address_p != 0) ? 1 : 0;
        return count_mapping(card, address_p);
    });
}

int unmap(context &card, card_lock &lock, uint64_t address)
{
    card.queues.quiesce(lock);
    const mmu_region *region = card.table.find(address);
    for (const auto &entry : card.buffers) {
        if (entry.second.va == address) {
            region = nullptr; /* the driver's own mapping */
        }
    }
    if (region == nullptr) {
        return broken("unmap-address", EINVAL,
                      "%s: unmap of %#lx, which no map call returned",
                      card.name, address);
    }
    if ((region->kind == memory_kind::device) &&
        is_exported(card.memory.fd(), address)) {
        /* Callers try: nothing else tells. */
        log("%s: unmap of %#lx refused: a dma-buf of it is alive", card.name,
            address);
        return -EINVAL;
    }
    card.table.unmap(address);
    --card.totals.mappings;
    return 0;
}

/* --- dma-bufs --------------------------------------------------------------*/

/* The pieces that a range of an allocation is in. */
std::vector<hbm_run> cut(const std::vector<hbm_run> &all, uint64_t offset,
                         uint64_t size)
{
    std::vector<hbm_run> runs;
    for (const hbm_run &run : all) {
        if (offset >= run.size) {
            offset -= run.size;
            continue;
        }
        const uint64_t bytes = std::min(size, run.size - offset);
        runs.push_back({run.offset + offset, bytes});
        offset = 0;
        size -= bytes;
        if (size == 0) {
            break;
        }
    }
    return runs;
}

int export_to(context &card, const memory_in &in, uint64_t &fd_p)
{
    const auto &[address, size, offset] = in.export_dmabuf;
    if (!emulated.exports) {
        return -EOPNOTSUPP;
    }
    const mmu_region *region = card.table.find(address);
    if ((region == nullptr) || (region->kind != memory_kind::device)) {
        return broken("export-range", EINVAL,
                      "%s: export of %#lx, which no device map call returned",
                      card.name, address);
    }
    if ((size == 0) || (size % host_page != 0) || (offset % host_page != 0) ||
        (offset > region->size) || (size > region->size - offset)) {
        return broken("export-range", EINVAL,
                      "%s: export of %lu bytes at offset %lu of %lu: must be "
                      "pages inside the mapping",
                      card.name, size, offset, region->size);
    }
    /* Until 6.7 hl_map_dmabuf takes no notice of the offset. */
    const int fd =
        create_dmabuf(card.memory.fd(), card.holder.get(), card.index, address,
                      cut(card.memory.find(region->handle)->runs,
                          emulated.is_drm ? offset : 0, size));
    if (fd < 0) {
        return fd;
    }
    if ((in.flags & O_CLOEXEC) == 0) {
        fcntl(fd, F_SETFD, 0);
    }
    fd_p = static_cast<uint32_t>(fd);
    return 0;
}

/* Of the vendor's driver; without settings::import there is none, as in the
 * mainline one. */
int import(software_card &importer, const memory_in &in, uint64_t &address_p)
{
    const auto fd       = static_cast<int>(in.import.fd);
    const uint64_t size = in.import.length;
    if (!get_settings().import) {
        log("memory operation %u is unknown to this driver", in.op);
        return -EINVAL;
    }
    /* Programs ask so whether there are imports; no fault is meant for that. */
    if (fcntl(fd, F_GETFD) < 0) {
        return -EBADF;
    }
    int ret = importer.begin(faulty_call::import);
    if (ret != 0) {
        return ret;
    }
    imported_memory memory;
    ret = imported_memory::create(fd, size, memory);
    if (ret != 0) {
        log("accel%u: import of file descriptor %d with %lu bytes: %s",
            importer.index(), fd, size,
            (ret == -EINVAL) ? "no dma-buf, or a smaller one"
                             : std::strerror(-ret));
        return ret;
    }
    return importer.with_open({}, [&](context &card, card_lock &) {
        const fault_effect met = faults::meet(faulty_call::route, card.index);
        address_p              = card.table.map_import(std::move(memory), size,
                                                       met.kind == fault_kind::none);
        return count_mapping(card, address_p);
    });
}

int operate(software_card &of, const memory_in &in, uint64_t &value_p)
{
    switch (in.op) {
    case memory_alloc:
        return of.with_open(faulty_call::allocate,
                            [&](context &card, card_lock &) {
                                return allocate(card, in, value_p);
                            });
    case memory_free:
        return of.with_open(faulty_call::free, [&](context &card, card_lock &) {
            return free(card, static_cast<uint32_t>(in.free.handle));
        });
    case memory_map:
        if ((in.flags & memory_flag_userptr) != 0) {
            return map_host(of, in, value_p);
        }
        return of.with_open(faulty_call::map, [&](context &card, card_lock &) {
            return map_device(card, in, value_p);
        });
    case memory_unmap:
        return of.with_open(faulty_call::unmap,
                            [&](context &card, card_lock &lock) {
                                return unmap(card, lock, in.unmap.address);
                            });
    case memory_export:
        value_p = static_cast<uint32_t>(-EBADF);
        return of.with_open(faulty_call::export_to,
                            [&](context &card, card_lock &) {
                                return export_to(card, in, value_p);
                            });
    case memory_import:
        return import(of, in, value_p);
    default:
        return broken("memory-op", EINVAL,
                      "memory operation %u is unknown to this driver", in.op);
    }
}

} // namespace

int answer(device_file file, memory_args &arguments)
{
    const memory_in in = arguments.in;
    uint64_t value     = 0;
    const int ret      = operate(software_card::at(file.card), in, value);
    arguments          = {};
    arguments.out      = {value, 0};
    return ret;
}

} // namespace gaudi::emu::driver
