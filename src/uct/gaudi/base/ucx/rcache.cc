/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/rcache.h"

#include "uct/gaudi/base/ucx/absent.h"

#include <utility>

extern "C" {
#include <ucs/config/global_opts.h>
#include <ucs/memory/rcache_int.h>
#include <ucs/sys/sys.h>
#include <ucs/time/time.h>
}

namespace gaudi::base {

/* What UCX calls. */
struct rcache::callbacks {
    static ucs_status_t mem_reg(void *context, ucs_rcache_t *, void *argument,
                                ucs_rcache_region_t *region,
                                uint16_t flags) noexcept
    {
        auto &cache      = *static_cast<rcache *>(context);
        const auto start = region->super.start;
        const auto end   = region->super.end;
        /* A merged region that a card cannot map as a whole would have its
         * parts staged that can be mapped; UCX tries without merging then. */
        constexpr int needed = PROT_READ | PROT_WRITE;
        if ((flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) && cache.of_host_memory_ &&
            ((ucs_get_mem_prot(start, end) & needed) != needed)) {
            return UCS_ERR_INVALID_ADDR;
        }
        return cache.create_region(region + 1, start, end, argument);
    }

    static void mem_dereg(void *context, ucs_rcache_t *,
                          ucs_rcache_region_t *region) noexcept
    {
        static_cast<rcache *>(context)->end_region(
            region + 1, region->super.start, region->super.end);
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

/* The caches of UCX 1.16 and before have one alignment for all regions. */
template <typename Cache>
ucs_status_t get_region(Cache *cache, void *address, size_t length,
                        void *argument, ucs_rcache_region_t **region_p)
{
    constexpr int access = PROT_READ | PROT_WRITE;
    if constexpr (requires { cache->params.alignment; }) {
        return ucs_rcache_get(cache, address, length, access, argument,
                              region_p);
    } else {
        return ucs_rcache_get(cache, address, length, rcache_alignment, access,
                              argument, region_p);
    }
}

[[maybe_unused]] void renew(pthread_rwlock_t &lock)
{
    (void)pthread_rwlock_init(&lock, nullptr);
}

template <typename Spinlock> /* from UCX 1.20 on */
void renew(Spinlock &lock)
{
    ucs_rw_spinlock_init(&lock);
}

} // namespace

double rcache_overhead(const rcache_config &config)
{
    return (config.overhead == UCS_TIME_AUTO)
               ? lookup_time
               : ucs_time_to_sec(config.overhead);
}

bool rcache_checks_pages()
{
    return ucs_global_opts.rcache_check_pfn != 0;
}

ucs_status_t rcache::create(const char *name, forget_on event,
                            const rcache_config &config, size_t storage_bytes)
{
    static const auto ops = callbacks::make<ucs_rcache_ops_t>();
    of_host_memory_       = (event == forget_on::unmapping);
    ucs_rcache_params_t params{};
    set_parameters(params, config);
    static_assert((UCT_API < UCT_VERSION(1, 20)) ||
                      (::UCS_RCACHE_FLAG_NEED_LRU_LOCK == UCS_BIT(3)),
                  "without it threads share a list of regions unlocked");
    params.flags |= ::UCS_RCACHE_FLAG_NEED_LRU_LOCK;
    params.region_struct_size = sizeof(ucs_rcache_region_t) + storage_bytes;
    params.ucm_events =
        of_host_memory_ ? UCM_EVENT_VM_UNMAPPED : UCM_EVENT_MEM_TYPE_FREE;
    params.context = this;
    params.ops     = &ops;

    ucs_status_t status = ucs_rcache_create(&params, name, nullptr, &cache_);
    if (status != UCS_OK) {
        cache_ = nullptr;
    } else if (of_host_memory_) {
        status   = ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED,
                                         static_cast<int>(config.event_prio) + 1,
                                         heard_unmapping, this);
        listens_ = (status == UCS_OK);
    }
    return status;
}

void rcache::destroy()
{
    if (std::exchange(listens_, false)) {
        ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, heard_unmapping, this);
    }
    /* Children look at it at any time. */
    if (ucs_rcache_t *ended = std::exchange(cache_, nullptr)) {
        ucs_rcache_destroy(ended);
    }
}

void *rcache::get(void *address, size_t length, void *argument)
{
    ucs_rcache_region_t *found;
    return (get_region(cache_, address, length, argument, &found) == UCS_OK)
               ? found + 1
               : nullptr;
}

void rcache::invalidate(void *storage)
{
    ucs_rcache_region_invalidate(
        cache_, to_region(storage), [](void *) {}, nullptr);
}

unsigned rcache::uses(const void *storage)
{
    const auto *region = static_cast<const ucs_rcache_region_t *>(storage) - 1;
    /* One reference of a region that can be found is the cache's own. UCX
     * clears the flag before it drops that: looked at in this order it is one
     * too many at most (ucs_rcache_region_invalidate_internal). */
    const unsigned all = __atomic_load_n(&region->refcount, __ATOMIC_ACQUIRE);
    const unsigned own = (region->flags & UCS_RCACHE_REGION_FLAG_PGTABLE) != 0;
    return (all > own) ? all - own : 0;
}

bool rcache::has_garbage()
{
    ucs_spin_lock(&cache_->lock);
    const bool any = (cache_->unreleased_size > 0);
    ucs_spin_unlock(&cache_->lock);
    return any;
}

void rcache::after_fork_in_child()
{
    if (cache_ != nullptr) {
        cache_->params.flags &= ~UCS_RCACHE_FLAG_PURGE_ON_FORK;
        renew(cache_->pgt_lock);
        (void)ucs_spinlock_init(&cache_->lock, 0);
    }
}

void rcache::heard_unmapping(ucm_event_type_t, ucm_event_t *event,
                             void *self) noexcept
{
    const auto start = reinterpret_cast<uintptr_t>(event->vm_unmapped.address);
    static_cast<rcache *>(self)->host_unmapped(start,
                                               start + event->vm_unmapped.size);
}

} // namespace gaudi::base
