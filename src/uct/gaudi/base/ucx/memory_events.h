/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Tells UCX of device memory: UCM, and through it, or at once, the cache of
 * memory types.
 *
 * A miss in that cache means host memory to UCX, so every allocation has to be
 * announced before its address is given out.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace gaudi::base {

/** Appends (address, length) of every allocation that there is. May run out of
 *  memory. */
using collect_allocations =
    void (*)(std::vector<std::pair<void *, size_t>> &allocations);

/** Register with UCM, to tell later listeners of earlier allocations. Called
 *  once, at load. */
void init_memory_events(collect_allocations collect);

/** Device memory has come to be. Called without any lock of ours. */
void announce_allocation(void *address, size_t length);

/** Have a function called, once, when there is device memory: now, or with the
 *  first that is announced. @return Whether it was called now. Any thread. */
bool when_there_is_memory(void (*call)());

/** Device memory is about to go. Called without any lock of ours. */
void announce_free(void *address, size_t length);

/** Have UCX remember that a range is device memory, and next to which system
 *  device. */
void remember_device_memory(void *address, size_t length,
                            ucs_sys_device_t device);

} // namespace gaudi::base
