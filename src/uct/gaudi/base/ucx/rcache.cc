/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/rcache.h"

#include "uct/gaudi/base/ucx/absent.h"

extern "C" {
#include <ucs/sys/sys.h>
#include <ucs/time/time.h>
}

namespace gaudi::base {

/* What UCX calls. */
struct rcache::callbacks {
    static ucs_status_t mem_reg(void *context, ucs_rcache_t *, void *,
                                ucs_rcache_region_t *region,
                                uint16_t flags) noexcept
    {
        const auto start = region->super.start;
        const auto end   = region->super.end;
        /* A merged region that a card cannot map as a whole would have its
         * parts staged that can be mapped; UCX tries without merging then. */
        constexpr int needed = PROT_READ | PROT_WRITE;
        if ((flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) &&
            ((ucs_get_mem_prot(start, end) & needed) != needed)) {
            return UCS_ERR_INVALID_ADDR;
        }
        return static_cast<rcache *>(context)->create_region(region + 1, start,
                                                             end);
    }

    static void mem_dereg(void *context, ucs_rcache_t *,
                          ucs_rcache_region_t *region) noexcept
    {
        static_cast<rcache *>(context)->end_region(region + 1);
    }

    static void dump_region(void *, ucs_rcache_t *, ucs_rcache_region_t *,
                            char *text, size_t size) noexcept
    {
        if (size > 0) {
            text[0] = '\0';
        }
    }

    template <typename Operations>
    static Operations make()
    {
        Operations own{};
        own.mem_reg     = mem_reg;
        own.mem_dereg   = mem_dereg;
        own.dump_region = dump_region;
        if constexpr (requires { own.merge; }) {
            own.merge = answer_nothing;
        }
        return own;
    }
};

namespace {

/* A look-up where nobody says what it costs, seconds: as UCX has it. */
constexpr double lookup_time = 180e-9;

template <typename Parameters>
void set_parameters(Parameters &params, const rcache_config &config)
{
#if UCT_API < UCT_VERSION(1, 16)
    uct_md_set_rcache_params(&params, &config);
#else
    ucs_rcache_set_params(&params, &config);
#endif
    if constexpr (requires { params.max_alignment; }) {
        params.max_alignment = ucs_get_page_size();
    }
}

/* UCX's lock of a cache: of pthreads, or its own from UCX 1.20 on. */
[[maybe_unused]] void renew(pthread_rwlock_t &lock)
{
    (void)pthread_rwlock_init(&lock, nullptr);
}
[[maybe_unused]] void lock_shared(pthread_rwlock_t &lock)
{
    (void)pthread_rwlock_rdlock(&lock);
}
[[maybe_unused]] void unlock_shared(pthread_rwlock_t &lock)
{
    (void)pthread_rwlock_unlock(&lock);
}
template <typename Spinlock>
void renew(Spinlock &lock)
{
    ucs_rw_spinlock_init(&lock);
}
template <typename Spinlock>
void lock_shared(Spinlock &lock)
{
    ucs_rw_spinlock_read_lock(&lock);
}
template <typename Spinlock>
void unlock_shared(Spinlock &lock)
{
    ucs_rw_spinlock_read_unlock(&lock);
}

/* Nobody's memory: a region of it is taken to have UCX drop regions of memory
 * that was unmapped. */
char unused_memory[rcache_alignment];

} // namespace

double rcache_overhead(const rcache_config &config)
{
    return (config.overhead == UCS_TIME_AUTO)
               ? lookup_time
               : ucs_time_to_sec(config.overhead);
}

ucs_status_t rcache::create(const char *name, const rcache_config &config,
                            size_t storage_bytes)
{
    static const auto ops = callbacks::make<ucs_rcache_ops_t>();
    ucs_rcache_params_t params{};
    set_parameters(params, config);
    static_assert((UCT_API < UCT_VERSION(1, 20)) ||
                      (::UCS_RCACHE_FLAG_NEED_LRU_LOCK == UCS_BIT(3)),
                  "without it threads share a list of regions unlocked");
    params.flags |= ::UCS_RCACHE_FLAG_NEED_LRU_LOCK;
    params.region_struct_size = sizeof(ucs_rcache_region_t) + storage_bytes;
    params.ucm_events         = UCM_EVENT_VM_UNMAPPED;
    params.context            = this;
    params.ops                = &ops;

    const ucs_status_t status =
        ucs_rcache_create(&params, name, nullptr, &cache_);
    if (status != UCS_OK) {
        cache_ = nullptr;
    }
    return status;
}

void rcache::destroy()
{
    if (cache_ != nullptr) {
        ucs_rcache_destroy(cache_);
        cache_ = nullptr;
    }
}

void *rcache::find(uint64_t start, size_t length)
{
    if (ucs_unlikely(has_unmapped(cache_))) {
        drop_unmapped();
    }
    ucs_rcache_region_t *found = nullptr;
    lock_shared(cache_->pgt_lock);
    if (ucs_likely(!has_unmapped(cache_))) {
        ucs_pgt_region_t *at = ucs_pgtable_lookup(&cache_->pgtable, start);
        auto *region         = ucs_derived_of(at, ucs_rcache_region_t);
        if ((at != nullptr) && (length <= at->end - start) &&
            (region->flags & UCS_RCACHE_REGION_FLAG_REGISTERED)) {
            ucs_rcache_region_hold(cache_, region);
            found = region;
        }
    }
    unlock_shared(cache_->pgt_lock);
    return (found != nullptr) ? found + 1 : nullptr;
}

void rcache::invalidate(void *storage)
{
    ucs_rcache_region_invalidate(
        cache_, to_region(storage), [](void *) {}, nullptr);
}

/* UCX does so when it creates a region. */
void rcache::drop_unmapped()
{
    if (void *region = get(unused_memory, 1)) {
        invalidate(region);
        put(region);
    }
}

uint64_t rcache::uses()
{
    drop_unmapped();
    struct totals {
        uint64_t uses    = 0;
        uint64_t regions = 0;
    } all;
    lock_shared(cache_->pgt_lock);
    ucs_pgtable_search_range(
        &cache_->pgtable, 0, UCS_PGT_ADDR_MAX,
        [](const ucs_pgtable_t *, ucs_pgt_region_t *each, void *arg) {
            auto &sum = *static_cast<totals *>(arg);
            sum.uses +=
                rcache::uses(ucs_derived_of(each, ucs_rcache_region_t) + 1);
            ++sum.regions;
        },
        &all);
    /* A region that nobody finds any more is there because it is in use. */
    all.uses += cache_->num_regions - all.regions;
    unlock_shared(cache_->pgt_lock);
    return all.uses;
}

uint64_t rcache::regions() const
{
    return exists() ? cache_->num_regions : 0;
}

uint64_t rcache::bytes() const
{
    return exists() ? cache_->total_size : 0;
}

bool rcache::is_full() const
{
    return (cache_->num_regions > cache_->params.max_regions) ||
           (cache_->total_size > cache_->params.max_size);
}

void rcache::after_fork_in_child()
{
    if (cache_ != nullptr) {
        cache_->params.flags &= ~UCS_RCACHE_FLAG_PURGE_ON_FORK;
        renew(cache_->pgt_lock);
        (void)ucs_spinlock_init(&cache_->lock, 0);
    }
}

} // namespace gaudi::base
