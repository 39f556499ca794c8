/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Hands out parts of address ranges: best fit, free neighbours joined.
 *
 * Knows numbers only, and never touches what is at an address. Every operation
 * takes logarithmic time. Not thread-safe.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace gaudi::util {

class range_allocator {
public:
    /**
     * Add a range to allocate from. It is a unit of its own: no allocation
     * crosses from one range into another, even where they touch.
     *
     * @param start  Not 0, and not in another range.
     * @param size   Not 0.
     */
    void add(uint64_t start, uint64_t size)
    {
        ranges_.emplace(start, size);
        enter(start, size);
    }

    /**
     * Take back a range that was added: nothing is allocated from it any more,
     * and what was allocated in it is not released here.
     */
    void remove(uint64_t start)
    {
        const auto range   = ranges_.find(start);
        const uint64_t end = range->first + range->second;
        auto piece         = by_start_.lower_bound(start);
        while ((piece != by_start_.end()) && (piece->first < end)) {
            strike(piece++);
        }
        ranges_.erase(range);
    }

    /** @return The address of `size` (not 0) bytes, or 0 when no range has
     *          that many in one piece. */
    [[nodiscard]] uint64_t allocate(uint64_t size)
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

    /** Undo an allocation, with the size that was asked for. */
    void release(uint64_t start, uint64_t size)
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

    /** Bytes that no allocation has. */
    [[nodiscard]] uint64_t free_bytes() const { return free_bytes_; }

    /** Pieces that the free bytes are in. */
    [[nodiscard]] size_t free_pieces() const { return by_start_.size(); }

private:
    void enter(uint64_t start, uint64_t size)
    {
        by_start_.emplace(start, size);
        by_size_.emplace(size, start);
        free_bytes_ += size;
    }

    void strike(std::map<uint64_t, uint64_t>::iterator piece)
    {
        by_size_.erase({piece->second, piece->first});
        free_bytes_ -= piece->second;
        by_start_.erase(piece);
    }

    std::map<uint64_t, uint64_t> ranges_;   /* start to size */
    std::map<uint64_t, uint64_t> by_start_; /* free pieces: start to size */
    std::set<std::pair<uint64_t, uint64_t>> by_size_; /* size and start */
    uint64_t free_bytes_ = 0;
};

} // namespace gaudi::util
