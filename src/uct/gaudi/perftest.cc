#include "uct/gaudi/perftest.h"

#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <mutex>

#include <dlfcn.h>

extern "C" {
#include <tools/perf/lib/libperf_int.h>
}

namespace gaudi::base {

namespace {

/* Copies for the program itself, beside its transport. It keeps the cards open
 * until the program ends. */
class helper_engine {
public:
    static helper_engine &instance()
    {
        static auto *helper = new helper_engine;
        return *helper;
    }

    ucs_status_t open()
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (engine_ != nullptr) {
            return UCS_OK;
        }
        auto &table         = device_table::instance();
        ucs_status_t status = table.open();
        if (status != UCS_OK) {
            table.explain_missing_card();
            return status;
        }
        return transfer_engine::create(*table.cards().front(), {}, engine_);
    }

    void copy(void *dst, const void *src, size_t length)
    {
        std::lock_guard<std::mutex> guard(lock_);
        ucs_status_t status = engine_->copy(dst, src, length);
        if (status != UCS_OK) {
            ucs_error("gaudi: copying %zu bytes for ucx_perftest failed: %s",
                      length, ucs_status_string(status));
        }
    }

private:
    std::mutex lock_;
    std::unique_ptr<transfer_engine> engine_;
};

ucs_status_t perf_init(ucx_perf_context_t *) noexcept
{
    return guarded([] { return helper_engine::instance().open(); });
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
    params.mem_type  = memory_type();
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
    helper_engine::instance().copy(dst, src, length);
}

void *perf_memset(void *dst, int value, size_t length) noexcept
{
    char pattern[4096];
    std::fill_n(pattern, sizeof(pattern), static_cast<char>(value));
    for (size_t done = 0; done < length;) {
        const size_t bytes = std::min(sizeof(pattern), length - done);
        helper_engine::instance().copy(static_cast<char *>(dst) + done, pattern,
                                       bytes);
        done += bytes;
    }
    return dst;
}

ucx_perf_allocator_t allocator;

} // namespace

void init_perftest()
{
    auto **allocators = static_cast<const ucx_perf_allocator_t **>(
        dlsym(RTLD_DEFAULT, "ucx_perf_mem_type_allocators"));
    if (allocators == nullptr) {
        return;
    }
    allocator.mem_type        = memory_type();
    allocator.init            = perf_init;
    allocator.uct_alloc       = perf_alloc;
    allocator.uct_free        = perf_free;
    allocator.memcpy          = perf_memcpy;
    allocator.memset          = perf_memset;
    allocators[memory_type()] = &allocator;
}

} // namespace gaudi::base
