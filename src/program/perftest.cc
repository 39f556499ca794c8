#include "program/perftest.h"

#include "program/program_memory.h"
#include "uct/gaudi/base/ucx/perf_allocator.h"

namespace gaudi::base {

namespace {

void complain(const char *what, size_t length, ucs_status_t status)
{
    if (status != UCS_OK) {
        ucs_error("gaudi: %s %zu bytes for ucx_perftest failed: %s", what,
                  length, ucs_status_string(status));
    }
}

ucs_status_t open()
{
    return program_memory::instance().open(nullptr);
}

void copy(void *dst, const void *src, size_t length)
{
    complain("copying", length,
             program_memory::instance().copy(dst, src, length));
}

void fill(void *dst, char value, size_t length)
{
    complain("filling", length,
             program_memory::instance().fill(dst, length, &value, 1));
}

} // namespace

void init_perftest()
{
    init_perf_allocator({open, copy, fill});
}

} // namespace gaudi::base
