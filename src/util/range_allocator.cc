#include "util/range_allocator.h"

#include <iterator>

namespace gaudi::util {

void range_allocator::enter(uint64_t start, uint64_t size)
{
    by_start_.emplace(start, size);
    by_size_.emplace(size, start);
    free_bytes_ += size;
}

void range_allocator::strike(std::map<uint64_t, uint64_t>::iterator piece)
{
    by_size_.erase({piece->second, piece->first});
    free_bytes_ -= piece->second;
    by_start_.erase(piece);
}

void range_allocator::add(uint64_t start, uint64_t size)
{
    ranges_.emplace(start, size);
    enter(start, size);
}

void range_allocator::remove(uint64_t start)
{
    const auto range   = ranges_.find(start);
    const uint64_t end = range->first + range->second;
    auto piece         = by_start_.lower_bound(start);
    while ((piece != by_start_.end()) && (piece->first < end)) {
        strike(piece++);
    }
    ranges_.erase(range);
}

uint64_t range_allocator::allocate(uint64_t size)
{
    const auto best = by_size_.lower_bound({size, 0});
    if (best == by_size_.end()) {
        return 0;
    }
    const auto [available, start] = *best;
    strike(by_start_.find(start));
    if (available > size) {
        enter(start + size, available - size);
    }
    return start;
}

void range_allocator::release(uint64_t start, uint64_t size)
{
    const auto range         = std::prev(ranges_.upper_bound(start));
    const uint64_t range_end = range->first + range->second;
    uint64_t end             = start + size;

    const auto after = by_start_.find(end);
    if ((after != by_start_.end()) && (end < range_end)) {
        end += after->second;
        strike(after);
    }
    auto before = by_start_.lower_bound(start);
    if (before != by_start_.begin()) {
        --before;
        if ((before->first >= range->first) &&
            (before->first + before->second == start)) {
            start = before->first;
            strike(before);
        }
    }
    enter(start, end - start);
}

} // namespace gaudi::util
