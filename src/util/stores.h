/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Stores to memory that a device reads, beside what C++ has for threads.
 */
#pragma once

#include <atomic>

namespace gaudi::util {

/** Order what was written to memory before a doorbell. */
inline void order_stores()
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/** Begin to have a line of the cache for writing, which somebody else has read.
 *  On x86-64 the compiler's own prefetch is one for reading, and processors
 * that lack this one do nothing (PREFETCHW in Intel's manual). */
inline void claim_line(const void *line)
{
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char *>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
}

} // namespace gaudi::util
