/**
 * The one copy that the CPU makes: of host memory, to host memory.
 */
#pragma once

#include <cstddef>
#include <cstring>

namespace gaudi::util {

/** Both ranges are host memory; they may overlap. */
inline void copy_host_bytes(void *dst, const void *src, size_t length)
{
    std::memmove(dst, src, length);
}

} // namespace gaudi::util
