/**
 * Sizes in whole units: pages, granules.
 */
#pragma once

#include <cstdint>

namespace gaudi::util {

/** The smallest multiple of a unit that is no less. @param unit  Not 0. The sum
 *  of both fits 64 bits. */
[[nodiscard]] constexpr uint64_t round_up(uint64_t size, uint64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

} // namespace gaudi::util
