/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls on the memory of an open card: its own, what it maps of the host,
 * and command buffers. */
#include "hlthunk_emulator/api.h"
#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/settings.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

using namespace gaudi::emu;
using gaudi::util::round_up;

namespace {

using context = software_card::context;

/* Where the addresses of programs end. */
constexpr uint64_t user_address_end = uint64_t{1} << 47;

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
int pin(void *host, uint64_t size)
{
    const auto address   = reinterpret_cast<uintptr_t>(host);
    const uint64_t start = address / host_page * host_page;
    const uint64_t end   = round_up(address + size, host_page);

    if (end > user_address_end) {
        return -EFAULT;
    }
    if (populate(start, end)) {
        return 0;
    }
    return populate(start, start + host_page) ? -ENOMEM : -EFAULT;
}

/* Calls with a 64-bit result say 0 for failure and leave errno.
 * @param value  Filled by what gives ret, perhaps in the same expression. */
uint64_t value_or_errno(int ret, const uint64_t &value)
{
    if (ret != 0) {
        errno = -ret;
        return 0;
    }
    return value;
}

uint64_t map_host(int fd, void *host, uint64_t hint, bool force_hint,
                  uint64_t size)
{
    uint64_t va   = 0;
    const int ret = on_compute(fd, [&](software_card &of) {
        const auto address = reinterpret_cast<uintptr_t>(host);
        if ((size == 0) || (address + size < address) ||
            (address + size > UINT64_MAX - host_page)) {
            return -EINVAL;
        }
        int status = of.begin(faulty_call::map);
        if (status != 0) {
            return status;
        }
        status = pin(host, size);
        if (status != 0) {
            log("accel%u: host memory %p of %lu bytes is not all there and "
                "writable",
                of.index(), host, size);
            return status;
        }
        return of.with_open({}, [&](context &card, card_lock &) {
            va = card.table.map_host(host, size, hint, force_hint);
            card.totals.host_maps += (va != 0) ? 1 : 0;
            return count_mapping(card, va);
        });
    });
    return value_or_errno(ret, va);
}

int request_buffer(int fd, uint32_t size, bool mapped, uint64_t *handle)
{
    if (handle == nullptr) {
        return -EINVAL;
    }
    return on_open(fd, {}, [=](context &card, card_lock &) {
        if (size > max_command_buffer) {
            return -EINVAL;
        }
        const uint64_t bytes  = std::max(host_page, round_up(size, host_page));
        const uint64_t offset = card.next_buffer;
        software_card::command_buffer buffer;
        if (!card.node.resize(offset + bytes) ||
            !buffer.data.map(card.node.find(), offset, bytes)) {
            return -ENOMEM;
        }
        /* The application has its own. */
        madvise(buffer.data.start(), bytes, MADV_DONTFORK);
        if (mapped) {
            buffer.va =
                card.table.map_command_buffer(buffer.data.start(), bytes);
            if (buffer.va == 0) {
                return -ENOMEM;
            }
        }
        card.next_buffer += bytes;
        card.buffers.emplace(offset, std::move(buffer));
        *handle = offset;
        return 0;
    });
}

} // namespace

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size,
                                                    uint64_t page_size,
                                                    bool /* contiguous */,
                                                    bool /* shared */)
{
    uint64_t handle     = 0;
    const auto allocate = [&](context &card, card_lock &) {
        if (size == 0) {
            return -EINVAL;
        }
        /* Who may not choose a page size is not asked for one. */
        if (get_settings().kind->user_page_size && (page_size != 0) &&
            (page_size != get_settings().dram_page)) {
            log("%s: pages of %lu bytes wanted, they have %lu", card.name,
                page_size, get_settings().dram_page);
            return -EINVAL;
        }
        handle = card.memory.allocate(size);
        if (handle == 0) {
            log("%s: %lu bytes of device memory wanted, %lu free", card.name,
                size, card.memory.free_bytes());
            return -ENOMEM;
        }
        ++card.totals.allocations;
        card.show_free_memory();
        return 0;
    };
    return value_or_errno(on_open(fd, faulty_call::allocate, allocate), handle);
}

HLTHUNK_PUBLIC int hlthunk_device_memory_free(int fd, uint64_t handle)
{
    return on_open(fd, faulty_call::free, [=](context &card, card_lock &) {
        const hbm_allocation *allocation = card.memory.find(handle);
        if ((allocation == nullptr) || (allocation->mappings > 0)) {
            log("%s: free of handle %lu, which is %s", card.name, handle,
                (allocation == nullptr) ? "unknown" : "mapped");
            return -EINVAL;
        }
        card.memory.free(handle);
        --card.totals.allocations;
        card.show_free_memory();
        return 0;
    });
}

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_map(int fd, uint64_t handle,
                                                  uint64_t hint_addr)
{
    uint64_t va    = 0;
    const auto map = [&](context &card, card_lock &) {
        hbm_allocation *allocation = card.memory.find(handle);
        if (allocation == nullptr) {
            log("%s: map of unknown handle %lu", card.name, handle);
            return -EINVAL;
        }
        va = card.table.map_device(handle, *allocation, hint_addr);
        return count_mapping(card, va);
    };
    return value_or_errno(on_open(fd, faulty_call::map, map), va);
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map_flags(int fd, void *host,
                                                      uint64_t hint_addr,
                                                      uint64_t size,
                                                      uint32_t flags)
{
    constexpr uint32_t force_hint = 0x8; /* HL_MEM_FORCE_HINT; others matter
                                            to other memory */
    return map_host(fd, host, hint_addr, (flags & force_hint) != 0, size);
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map(int fd, void *host,
                                                uint64_t hint_addr,
                                                uint64_t size)
{
    return map_host(fd, host, hint_addr, false, size);
}

HLTHUNK_PUBLIC int hlthunk_get_dev_memalloc_page_orders(int fd,
                                                        uint64_t *page_orders)
{
    if (is_inherited(fd)) {
        return why_no_card(fd);
    }
    if ((find_any(fd) == nullptr) || (page_orders == nullptr)) {
        return -EINVAL;
    }
    /* A bit for each size that may be chosen, if any may. */
    *page_orders =
        get_settings().kind->user_page_size ? get_settings().dram_page : 0;
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_memory_unmap(int fd, uint64_t device_va)
{
    return on_open(fd, faulty_call::unmap, [=](context &card, card_lock &lock) {
        card.queues.quiesce(lock);
        const mmu_region *region = card.table.find(device_va);
        for (const auto &entry : card.buffers) {
            if (entry.second.va == device_va) {
                region = nullptr; /* the driver's own mapping */
            }
        }
        if (region == nullptr) {
            log("%s: unmap of %#lx, which no map call returned", card.name,
                device_va);
            return -EINVAL;
        }
        if ((region->kind == memory_kind::device) &&
            is_exported(card.memory.fd(), device_va)) {
            log("%s: unmap of %#lx refused: a dma-buf of it is alive",
                card.name, device_va);
            return -EINVAL;
        }
        card.table.unmap(device_va);
        --card.totals.mappings;
        return 0;
    });
}

HLTHUNK_PUBLIC int hlthunk_request_command_buffer(int fd, uint32_t size,
                                                  uint64_t *cb_handle)
{
    return request_buffer(fd, size, false, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_request_mapped_command_buffer(int fd, uint32_t size,
                                                         uint64_t *cb_handle)
{
    return request_buffer(fd, size, true, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_get_mapped_cb_device_va_by_handle(int fd,
                                                             uint64_t cb_handle,
                                                             uint64_t *va)
{
    if (va == nullptr) {
        return -EINVAL;
    }
    return on_open(fd, {}, [=](context &card, card_lock &) {
        const auto found = card.buffers.find(cb_handle);
        if ((found == card.buffers.end()) || (found->second.va == 0)) {
            return -EINVAL;
        }
        *va = found->second.va;
        return 0;
    });
}

HLTHUNK_PUBLIC int hlthunk_destroy_command_buffer(int fd, uint64_t cb_handle)
{
    return on_open(fd, {}, [=](context &card, card_lock &lock) {
        card.queues.quiesce(lock);
        const auto found = card.buffers.find(cb_handle);
        if (found == card.buffers.end()) {
            return -EINVAL;
        }
        if (found->second.va != 0) {
            card.table.unmap(found->second.va);
        }
        card.buffers.erase(found);
        return 0;
    });
}
