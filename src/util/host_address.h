/**
 * Where the addresses of host memory end.
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

} // namespace gaudi::util
