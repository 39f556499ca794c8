/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/mmu.h"

#include "hlthunk_emulator/settings.h"
#include "util/addresses.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace gaudi::emu {

va_space::va_space(const va_range &range, uint64_t granule,
                   uint64_t offset_mask, const va_range &hints)
    : granule_(granule), offset_mask_(offset_mask), hints_(hints)
{
    free_.emplace(range.start, range.end);
}

void va_space::carve(block_map::iterator block, uint64_t start, uint64_t end)
{
    const auto [block_start, block_end] = *block;

    free_.erase(block);
    if (block_start < start) {
        free_.emplace(block_start, start);
    }
    if (end < block_end) {
        free_.emplace(end, block_end);
    }
}

uint64_t va_space::take(uint64_t size, uint64_t hint, uint64_t align)
{
    const uint64_t length = util::round_up(size, granule_);
    const uint64_t step   = std::max<uint64_t>(align, 1);

    if (((hint & offset_mask_) % granule_ != 0) || (hint % step != 0)) {
        hint = 0;
    }
    auto best      = free_.end();
    uint64_t start = 0;
    uint64_t bytes = UINT64_MAX;
    for (auto block = free_.begin(); block != free_.end(); ++block) {
        const uint64_t first = util::round_up(block->first, step);
        if ((first >= block->second) || (block->second - first < length)) {
            continue;
        }
        if ((hint >= first) && (hint < block->second) &&
            (block->second - hint > length)) {
            carve(block, hint, hint + length);
            return hint;
        }
        const bool for_hints =
            (first < hints_.end) && (hints_.start < first + length);
        if ((block->second - first < bytes) && ((hint != 0) || !for_hints)) {
            best  = block;
            start = first;
            bytes = block->second - first;
        }
    }
    if (best != free_.end()) {
        carve(best, start, start + length);
    }
    return start;
}

void va_space::give(uint64_t address, uint64_t size)
{
    uint64_t start = address;
    uint64_t end   = address + util::round_up(size, granule_);

    auto next = free_.lower_bound(start);
    if ((next != free_.end()) && (next->first == end)) {
        end  = next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto previous = std::prev(next);
        if (previous->second == start) {
            start = previous->first;
            free_.erase(previous);
        }
    }
    free_.emplace(start, end);
}

namespace {

/* The driver maps DRAM pages as pages of a power of two, and so has fewer
 * addresses than the card (gaudi2_set_fixed_properties). */
va_range device_range()
{
    const settings &is   = get_settings();
    const uint64_t start = is.kind->dram_start + is.hbm;
    return {start, start + is.dram_page * ((is.kind->dram_va_end - start) /
                                           std::bit_ceil(is.dram_page))};
}

/* The likeliest first. */
std::array<va_range, 5> ranges_of_commands()
{
    const settings &is = get_settings();
    const asic &kind   = *is.kind;
    return {{kind.host,
             kind.host_huge,
             device_range(),
             {kind.dram_start + is.dram_page, kind.dram_start + is.hbm},
             {kind.sram_start, kind.sram_start + kind.sram_bytes}}};
}

} // namespace

mmu::mmu(hbm &memory)
    : memory_(memory), command_ranges_(ranges_of_commands()),
      device_space_(device_range(), get_settings().dram_page,
                    dram_va_offset_mask, get_settings().kind->dram_hints),
      command_buffer_space_(
          {get_settings().kind->host.start,
           get_settings().kind->host.start + command_buffer_pool},
          host_page, host_page - 1),
      host_space_({get_settings().kind->host.start + driver_host_range,
                   get_settings().kind->host.end},
                  host_page, host_page - 1),
      huge_space_(get_settings().kind->host_huge, host_huge_page,
                  host_huge_page - 1)
{}

uint64_t mmu::map_device(uint64_t handle, hbm_allocation &allocation,
                         uint64_t hint)
{
    const uint64_t va = device_space_.take(allocation.size, hint);
    if (va != 0) {
        regions_.emplace(va, mmu_region{allocation.size,
                                        memory_kind::device,
                                        handle,
                                        allocation.data.start(),
                                        {}});
        ++allocation.mappings;
    }
    return va;
}

uint64_t mmu::map_import(imported_memory memory, uint64_t size, bool reached)
{
    const uint64_t va = host_space_.take(size, 0);
    if (va != 0) {
        char *data = reached ? memory.data() : nullptr;
        regions_.emplace(va, mmu_region{size, memory_kind::imported, 0, data,
                                        std::move(memory)});
    }
    return va;
}

uint64_t mmu::add_host(uint64_t va, void *host, uint64_t size)
{
    if (va == 0) {
        return 0;
    }
    /* The caller's address is the page's plus the offset, for unmap too. */
    va += reinterpret_cast<uintptr_t>(host) % host_page;
    regions_.emplace(
        va,
        mmu_region{size, memory_kind::host, 0, static_cast<char *>(host), {}});
    return va;
}

uint64_t mmu::map_host(void *host, uint64_t size, uint64_t hint,
                       bool force_hint)
{
    const auto address    = reinterpret_cast<uintptr_t>(host);
    const uint64_t offset = address % host_page;
    const bool aligned    = address % host_huge_page == 0;
    const bool huge       = aligned && (size % host_huge_page == 0);
    va_space &space       = huge ? huge_space_ : host_space_;

    /* A hint is for whole pages. */
    hint = (offset == 0) ? hint : 0;
    const uint64_t va =
        space.take(offset + size, hint, aligned ? host_huge_page : host_page);
    if (force_hint && (va != 0) && (va != hint)) {
        space.give(va, offset + size);
        return 0;
    }
    return add_host(va, host, size);
}

uint64_t mmu::map_command_buffer(void *buffer, uint64_t size)
{
    return add_host(command_buffer_space_.take(size, 0), buffer, size);
}

/* Of host memory and imports. */
va_space &mmu::space_of(uint64_t va)
{
    const asic &kind = *get_settings().kind;
    if ((va >= kind.host_huge.start) && (va < kind.host_huge.end)) {
        return huge_space_;
    }
    return (va - kind.host.start < command_buffer_pool) ? command_buffer_space_
                                                        : host_space_;
}

mmu_region *mmu::find(uint64_t va)
{
    auto found = regions_.find(va);
    return (found == regions_.end()) ? nullptr : &found->second;
}

void mmu::unmap(uint64_t va)
{
    last_ = {};

    auto found               = regions_.find(va);
    const mmu_region &region = found->second;

    if (region.kind == memory_kind::device) {
        --memory_.find(region.handle)->mappings;
        device_space_.give(va, region.size);
    } else {
        const uint64_t offset = va % host_page;
        space_of(va).give(va - offset, offset + region.size);
    }
    regions_.erase(found);
}

/* Find the contiguous piece of memory around an address. */
bool mmu::walk(uint64_t va, tlb_entry &entry) const
{
    auto found = regions_.upper_bound(va);
    if (found == regions_.begin()) {
        return false;
    }
    --found;
    if (va - found->first >= found->second.size) {
        return false;
    }
    const mmu_region &region = found->second;
    if (region.host == nullptr) {
        return false;
    }
    entry = {found->first,
             found->first + region.size,
             region.host,
             {region.kind, region.import.card()}};
    return true;
}

} // namespace gaudi::emu
