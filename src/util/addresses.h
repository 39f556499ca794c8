/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Addresses of this machine, and sizes in whole units: pages, granules.
 */
#pragma once

#include <cstdint>

namespace gaudi::util {

/**
 * No pointer of a user program is this or more. x86-64 with five levels of page
 * tables has 57 bits of virtual addresses, of which user space has the lower
 * half; every other 64-bit Linux that Gaudi cards are plugged into has less.
 */
inline constexpr uint64_t host_address_end = uint64_t{1} << 56;

/** The smallest multiple of a unit that is no less. @param unit  Not 0. The sum
 *  of both fits 64 bits. */
[[nodiscard]] constexpr uint64_t round_up(uint64_t size, uint64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

} // namespace gaudi::util
