/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The memory domain: a registration that is cached beside UCX's bare cache and
 * beside one that is not; look-ups among few allocations and many; and what
 * UCP's detection of a host pointer takes, for a run with the module and one
 * without.
 *
 * Only ratios within one run mean anything: `scripts/bench md` prints them.
 */
#include "session.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include <sys/mman.h>

extern "C" {
#include <config.h>
#include <ucm/api/ucm.h>
#include <ucp/core/ucp_context.h>
#include <ucs/memory/rcache_int.h>
#include <ucs/sys/sys.h>
}

namespace {

using gaudi::bench::require;
using gaudi::bench::session;

constexpr size_t page = 4096;

/* Host memory that is never unmapped. */
char *pages(size_t count)
{
    void *mapped = mmap(nullptr, count * page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapped != MAP_FAILED, "mmap");
    return static_cast<char *>(mapped);
}

/* --- registration --------------------------------------------------------- */

constexpr size_t alignment = 64; /* of regions */

/* Regions need nothing done; UCX tells of merging from 1.18 on, too. */
template <typename Operations>
Operations no_operations()
{
    Operations none{};
    none.mem_reg     = [](void *, ucs_rcache_t *, void *, ucs_rcache_region_t *,
                      uint16_t) { return UCS_OK; };
    none.mem_dereg   = [](void *, ucs_rcache_t *, ucs_rcache_region_t *) {};
    none.dump_region = [](void *, ucs_rcache_t *, ucs_rcache_region_t *, char *,
                          size_t) {};
    if constexpr (requires { none.merge; }) {
        none.merge = [](auto...) {};
    }
    return none;
}

/* From UCX 1.17 on get_region() says it. */
template <typename Parameters>
void set_alignment(Parameters &params)
{
    if constexpr (requires { params.alignment; }) {
        params.alignment     = alignment;
        params.max_alignment = ucs_get_page_size();
    }
}

template <typename Cache>
ucs_rcache_region_t *get_region(Cache *cache, void *address, size_t length)
{
    constexpr int access        = PROT_READ | PROT_WRITE;
    ucs_rcache_region_t *region = nullptr;
    if constexpr (requires { cache->params.alignment; }) {
        (void)ucs_rcache_get(cache, address, length, access, nullptr, &region);
    } else {
        (void)ucs_rcache_get(cache, address, length, alignment, access, nullptr,
                             &region);
    }
    return region;
}

ucs_rcache_t *bare_cache()
{
    static const auto operations = no_operations<ucs_rcache_ops_t>();
    ucs_rcache_params_t params{};
    params.region_struct_size = sizeof(ucs_rcache_region_t);
    params.ucm_events         = UCM_EVENT_VM_UNMAPPED;
    params.ucm_event_priority = 1000;
    params.ops                = &operations;
    params.max_regions        = 4096;
    params.max_size           = SIZE_MAX;
    params.max_unreleased     = SIZE_MAX;
    set_alignment(params);
    ucs_rcache_t *cache;
    require(ucs_rcache_create(&params, "bench", nullptr, &cache),
            "rcache_create");
    return cache;
}

void reference_rcache_get_put(benchmark::State &state)
{
    static ucs_rcache_t *cache = bare_cache();
    static char *host          = pages(16);
    for (auto _ : state) {
        ucs_rcache_region_put(cache, get_region(cache, host, 16 * page));
    }
}

void register_once(char *host, size_t length)
{
    uct_md_h md = session::instance().md;
    uct_mem_h memh;
    (void)uct_md_mem_reg(md, host, length, UCT_MD_MEM_ACCESS_ALL, &memh);
    (void)uct_md_mem_dereg(md, memh);
}

void registration_hit(benchmark::State &state)
{
    static char *host = pages(16);
    for (auto _ : state) {
        register_once(host, 16 * page);
    }
}

/* More regions in turn than the cache keeps; each is mapped by the card. */
template <bool mapped>
void registration_miss(benchmark::State &state)
{
    constexpr size_t regions = 5000;
    static char *host        = pages(2 * regions);
    uct_md_h md              = session::instance().md;
    size_t next              = 0;
    for (auto _ : state) {
        char *memory = host + 2 * next * page;
        uct_mem_h memh;
        (void)uct_md_mem_reg(md, memory, page, UCT_MD_MEM_ACCESS_ALL, &memh);
        if (mapped) {
            (void)uct_md_mem_advise(md, memh, memory, page, UCT_MADV_WILLNEED);
        }
        (void)uct_md_mem_dereg(md, memh);
        next = (next + 1) % regions;
    }
}

/* --- look-up -------------------------------------------------------------- */

class allocations {
public:
    explicit allocations(size_t count) : all_(count)
    {
        session &s = session::instance();
        uct_md_attr_t attr;
        require(uct_md_query(s.md, &attr), "md_query");
        const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
        uct_mem_alloc_params_t params{};
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                            UCT_MEM_ALLOC_PARAM_FIELD_MDS;
        params.flags    = UCT_MD_MEM_ACCESS_ALL;
        params.mem_type = static_cast<ucs_memory_type_t>(
            __builtin_ctzl(attr.cap.alloc_mem_types));
        params.mds = {&s.md, 1};
        for (auto &memory : all_) {
            require(uct_mem_alloc(page, &method, 1, &params, &memory),
                    "mem_alloc");
        }
    }
    ~allocations()
    {
        for (auto &memory : all_) {
            (void)uct_mem_free(&memory);
        }
    }
    allocations(const allocations &)            = delete;
    allocations &operator=(const allocations &) = delete;

    [[nodiscard]] const char *address(size_t index) const
    {
        return static_cast<const char *>(all_[index].address);
    }

private:
    std::vector<uct_allocated_memory_t> all_;
};

/* Ten buffers of a program in turn, which has some more. */
void mem_query(benchmark::State &state)
{
    constexpr size_t used = 10;
    const auto count      = static_cast<size_t>(state.range(0));
    allocations all(count);
    uct_md_h md = session::instance().md;
    uct_md_mem_attr_t attr{};
    attr.field_mask =
        UCT_MD_MEM_ATTR_FIELD_MEM_TYPE | UCT_MD_MEM_ATTR_FIELD_SYS_DEV |
        UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS | UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH;
    size_t next = 0;
    for (auto _ : state) {
        (void)uct_md_mem_query(md, all.address(next * (count / used)) + 100,
                               page - 100, &attr);
        next = (next + 1) % used;
    }
}

/* --- detection of a host pointer ------------------------------------------ */

ucp_context_h make_context()
{
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    ucp_context_h context;
    require(ucp_init(&params, nullptr, &context), "ucp_init");
    return context;
}

void detect_host_pointer(benchmark::State &state)
{
    static ucp_context_h context = make_context();
    static char *host            = pages(1);
    for (auto _ : state) {
        ucp_memory_info_t info;
        ucp_memory_detect(context, host, page, &info);
        benchmark::DoNotOptimize(info);
    }
}

} // namespace

BENCHMARK(reference_rcache_get_put);
BENCHMARK(registration_hit);
BENCHMARK(registration_miss<false>)->Name("registration_miss");
BENCHMARK(registration_miss<true>)->Name("registration_miss_mapped");
BENCHMARK(mem_query)->Arg(10)->Arg(100000);
BENCHMARK(detect_host_pointer);
