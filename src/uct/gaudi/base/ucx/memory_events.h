/**
 * Tells UCM, and so UCX's memory type cache, of device memory.
 *
 * A miss in that cache means host memory to UCX, so every allocation has to be
 * announced before its address is given out.
 */
#pragma once

#include <cstddef>

namespace gaudi::base {

/** Register with UCM, to tell later listeners of earlier allocations. Called
 *  once, at load. */
void init_memory_events();

/** Device memory has come to be. Called without any lock of ours. */
void announce_allocation(void *address, size_t length);

/** Device memory is about to go. Called without any lock of ours. */
void announce_free(void *address, size_t length);

} // namespace gaudi::base
