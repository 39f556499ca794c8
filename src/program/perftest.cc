/* SPDX-License-Identifier: BSD-3-Clause */
/* Our memory type in ucx_perftest. */
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/base/ucx/memory_type.h"

#include <dlfcn.h>

extern "C" {
#include <tools/perf/lib/libperf_int.h>
}

namespace gaudi {

namespace {

ucx_perf_allocator_t allocator;

void complain(const char *what, size_t length, ucs_status_t status)
{
    if (status != UCS_OK) {
        ucs_error("gaudi: %s %zu bytes for ucx_perftest failed: %s", what,
                  length, ucs_status_string(status));
    }
}

ucs_status_t perf_init(ucx_perf_context_t *) noexcept
{
    return ucx_gaudi_open(nullptr);
}

ucs_status_t perf_alloc(const ucx_perf_context_t *perf, size_t length,
                        unsigned flags, uct_allocated_memory_t *memory) noexcept
{
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_md_h md                     = perf->uct.md;
    uct_mem_alloc_params_t params{};

    params.field_mask =
        UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
        UCT_MEM_ALLOC_PARAM_FIELD_MDS | UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags     = flags;
    params.mem_type  = base::memory_type();
    params.mds.mds   = &md;
    params.mds.count = 1;
    params.name      = "ucx_perftest";
    return uct_mem_alloc(length, &method, 1, &params, memory);
}

void perf_free(const ucx_perf_context_t *,
               uct_allocated_memory_t *memory) noexcept
{
    (void)uct_mem_free(memory);
}

void perf_memcpy(void *dst, ucs_memory_type_t, const void *src,
                 ucs_memory_type_t, size_t length) noexcept
{
    complain("copying", length, ucx_gaudi_mem_copy(dst, src, length));
}

void *perf_memset(void *dst, int value, size_t length) noexcept
{
    const auto byte = static_cast<char>(value);
    complain("filling", length, ucx_gaudi_mem_fill(dst, length, &byte, 1));
    return dst;
}

} // namespace

void init_perftest()
{
    const ucs_memory_type_t type = base::memory_type();
    auto **allocators            = static_cast<const ucx_perf_allocator_t **>(
        dlsym(RTLD_DEFAULT, "ucx_perf_mem_type_allocators"));
    if (allocators == nullptr) {
        return;
    }
    allocator.mem_type  = type;
    allocator.init      = perf_init;
    allocator.uct_alloc = perf_alloc;
    allocator.uct_free  = perf_free;
    allocator.memcpy    = perf_memcpy;
    allocator.memset    = perf_memset;
    allocators[type]    = &allocator;
}

} // namespace gaudi
