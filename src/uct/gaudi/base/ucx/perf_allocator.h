/**
 * Our memory type in ucx_perftest: its slot in the table of allocators that the
 * program exports.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** What ucx_perftest needs beside a memory domain. */
struct perf_functions {
    /** Called once or more, before anything else. */
    ucs_status_t (*open)();
    /** Copy between memory of any kind. */
    void (*copy)(void *dst, const void *src, size_t length);
    /** Set all bytes of memory of any kind. */
    void (*fill)(void *dst, char value, size_t length);
};

/** Fill the slot, for good. Called once, at load, before main; does nothing in
 *  other programs. */
void init_perf_allocator(const perf_functions &functions);

} // namespace gaudi::base
