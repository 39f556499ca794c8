/**
 * Hands out parts of address ranges: best fit, free neighbours joined.
 *
 * Knows numbers only, and never touches what is at an address. Every operation
 * takes logarithmic time. Not thread-safe.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

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
    void add(uint64_t start, uint64_t size);

    /**
     * Take back a range that was added: nothing is allocated from it any more,
     * and what was allocated in it is not released here.
     */
    void remove(uint64_t start);

    /** @return The address of `size` (not 0) bytes, or 0 when no range has
     *          that many in one piece. */
    [[nodiscard]] uint64_t allocate(uint64_t size);

    /** Undo an allocation, with the size that was asked for. */
    void release(uint64_t start, uint64_t size);

    /** Bytes that no allocation has. */
    [[nodiscard]] uint64_t free_bytes() const { return free_bytes_; }

    /** Pieces that the free bytes are in. */
    [[nodiscard]] size_t free_pieces() const { return by_start_.size(); }

private:
    void enter(uint64_t start, uint64_t size);
    void strike(std::map<uint64_t, uint64_t>::iterator piece);

    std::map<uint64_t, uint64_t> ranges_;   /* start to size */
    std::map<uint64_t, uint64_t> by_start_; /* free pieces: start to size */
    std::set<std::pair<uint64_t, uint64_t>> by_size_; /* size and start */
    uint64_t free_bytes_ = 0;
};

} // namespace gaudi::util
