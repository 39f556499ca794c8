#include "hlthunk_shim/emu/mmu.h"

#include "hlthunk_shim/emu/settings.h"
#include "util/addresses.h"

#include <algorithm>
#include <iterator>

namespace gaudi::emu {

va_space::va_space(const va_range &range, uint64_t granule,
                   uint64_t offset_mask)
    : granule_(granule), offset_mask_(offset_mask)
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

uint64_t va_space::take(uint64_t size, uint64_t hint)
{
    const uint64_t length = util::round_up(size, granule_);

    if ((hint != 0) && ((hint & offset_mask_) % granule_ == 0)) {
        auto block = free_.upper_bound(hint);
        if (block != free_.begin()) {
            --block;
            if ((hint < block->second) && (block->second - hint >= length)) {
                carve(block, hint, hint + length);
                return hint;
            }
        }
    }
    for (auto block = free_.begin(); block != free_.end(); ++block) {
        const uint64_t start = block->first;
        if (block->second - start >= length) {
            carve(block, start, start + length);
            return start;
        }
    }
    return 0;
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

mmu::mmu(hbm &memory, uint64_t memory_size)
    : memory_(memory), device_range_{get_settings().kind->dram_start +
                                         memory_size,
                                     get_settings().kind->dram_va_end},
      host_range_(get_settings().kind->host),
      device_space_(device_range_, get_settings().dram_page,
                    dram_va_offset_mask),
      host_space_(host_range_, host_page, host_page - 1)
{}

bool mmu::in_range(uint64_t va, uint64_t size) const
{
    const auto within = [=](const va_range &range) {
        return (va >= range.start) && (va < range.end) &&
               (size <= range.end - va);
    };
    return within(device_range_) || within(host_range_);
}

uint64_t mmu::map_device(uint64_t handle, hbm_allocation &allocation,
                         uint64_t hint)
{
    const uint64_t va = device_space_.take(allocation.size, hint);
    if (va != 0) {
        regions_.emplace(
            va, mmu_region{
                    allocation.size, memory_kind::device, handle, nullptr, {}});
        ++allocation.mappings;
    }
    return va;
}

uint64_t mmu::map_import(imported_memory memory, uint64_t size)
{
    const uint64_t va = host_space_.take(size, 0);
    if (va != 0) {
        char *data = memory.data();
        regions_.emplace(va, mmu_region{size, memory_kind::imported, 0, data,
                                        std::move(memory)});
    }
    return va;
}

uint64_t mmu::map_host(void *host, uint64_t size)
{
    const uint64_t offset = reinterpret_cast<uintptr_t>(host) % host_page;
    const uint64_t va     = host_space_.take(offset + size, 0);
    if (va == 0) {
        return 0;
    }
    /* The caller's address is the page's plus the offset, for unmap too. */
    regions_.emplace(
        va + offset,
        mmu_region{size, memory_kind::host, 0, static_cast<char *>(host), {}});
    return va + offset;
}

mmu_region *mmu::find(uint64_t va)
{
    auto found = regions_.find(va);
    return (found == regions_.end()) ? nullptr : &found->second;
}

void mmu::unmap(uint64_t va)
{
    tlb_ = {};

    auto found               = regions_.find(va);
    const mmu_region &region = found->second;

    if (region.kind == memory_kind::device) {
        --memory_.find(region.handle)->mappings;
        device_space_.give(va, region.size);
    } else {
        const uint64_t offset = va % host_page;
        host_space_.give(va - offset, offset + region.size);
    }
    regions_.erase(found);
}

bool mmu::translate(port from, uint64_t va, uint64_t size,
                    translation &result) const
{
    size_t &last = last_[static_cast<size_t>(from)];
    if (!tlb_[last].covers(va)) {
        const auto known =
            std::find_if(tlb_.begin(), tlb_.end(),
                         [va](const auto &entry) { return entry.covers(va); });
        if (known != tlb_.end()) {
            last = static_cast<size_t>(known - tlb_.begin());
        } else {
            tlb_entry found;
            if (!walk(va, found)) {
                return false;
            }
            last         = next_victim_;
            tlb_[last]   = found;
            next_victim_ = (next_victim_ + 1) % tlb_.size();
        }
    }
    const tlb_entry &entry = tlb_[last];
    result                 = entry.first;
    result.address += va - entry.start;
    result.size = std::min(size, entry.end - va);
    return true;
}

/* Find the contiguous piece of memory around an address. */
bool mmu::walk(uint64_t va, tlb_entry &entry) const
{
    auto found = regions_.upper_bound(va);
    if (found == regions_.begin()) {
        return false;
    }
    --found;
    const mmu_region &region = found->second;
    if (va - found->first >= region.size) {
        return false;
    }
    entry.start      = found->first;
    entry.end        = found->first + region.size;
    entry.first.kind = region.kind;
    entry.first.card = region.import.card();
    if (region.kind != memory_kind::device) {
        entry.first.address = region.host;
        return true;
    }
    for (const hbm_run &run : memory_.find(region.handle)->runs) {
        if (va - entry.start < run.size) {
            entry.end           = entry.start + run.size;
            entry.first.address = memory_.at(run.offset);
            return true;
        }
        entry.start += run.size;
    }
    return false;
}

} // namespace gaudi::emu
