/**
 * How long a file this process may make (RLIMIT_FSIZE): a longer one is a
 * signal that kills it, for files in memory, too.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/resource.h>

namespace gaudi::util {

/** @return Bytes. */
inline size_t longest_file()
{
    rlimit limit{};
    return (getrlimit(RLIMIT_FSIZE, &limit) == 0) ? limit.rlim_cur : SIZE_MAX;
}

} // namespace gaudi::util
