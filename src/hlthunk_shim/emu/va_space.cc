#include "hlthunk_shim/emu/va_space.h"

#include "util/round_up.h"

#include <iterator>

namespace gaudi::emu {

va_space::va_space(uint64_t start, uint64_t end, uint64_t granule,
                   uint64_t offset_mask)
    : granule_(granule), offset_mask_(offset_mask)
{
    free_.emplace(start, end);
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

} // namespace gaudi::emu
