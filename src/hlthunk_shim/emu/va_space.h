/**
 * Hands out ranges of a device virtual address space.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include <cstdint>
#include <map>

namespace gaudi::emu {

class va_space {
public:
    /**
     * @param start,end    The space; start is a multiple of the granule.
     * @param granule      Every range is a multiple of this.
     * @param offset_mask  Part of an address that counts granules.
     */
    va_space(uint64_t start, uint64_t end, uint64_t granule,
             uint64_t offset_mask);

    /**
     * Take a range.
     *
     * @param hint  Wished address; one that is misaligned, outside or taken is
     *              silently ignored, as the driver does.
     * @return Its address, 0 when no range is large enough.
     */
    uint64_t take(uint64_t size, uint64_t hint);

    /** Give a range back. */
    void give(uint64_t address, uint64_t size);

private:
    using block_map = std::map<uint64_t, uint64_t>; /* start -> end */

    void carve(block_map::iterator block, uint64_t start, uint64_t end);

    const uint64_t granule_;
    const uint64_t offset_mask_;
    block_map free_;
};

} // namespace gaudi::emu
