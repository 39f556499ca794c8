#include "uct/gaudi/base/memory/registration_cache.h"

#include "uct/gaudi/base/memory/device_table.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <cstring>
#include <new>

#include <sys/mman.h>

extern "C" {
#include <ucs/config/global_opts.h>
#include <ucs/memory/rcache.h>
#include <ucs/memory/rcache_int.h>
#include <ucs/sys/sys.h>
}

namespace gaudi::base {

namespace {

/* What this thread is doing when UCX calls back. Initial-exec: it is looked at
 * in every registration. */
struct thread_state {
    bool unmapping;  /* it unmaps when UCX has returned */
    bool created;    /* it has made a region in this call */
    bool collecting; /* the region that it makes is for nothing */
};
[[gnu::tls_model("initial-exec")]] thread_local thread_state current;

/* The cache of this process, for children. */
std::atomic<registration_cache *> active{nullptr};

void after_fork_in_child()
{
    registration_cache *cache = active.exchange(nullptr);
    if (cache != nullptr) {
        cache->after_fork_in_child();
    }
}

/* Whether the cache has regions to release, or unmapped memory to look for
 * regions of. The field is private to UCX 1.13. */
bool has_garbage(ucs_rcache_t &cache)
{
    ucs_spin_lock(&cache.lock);
    const bool any = (cache.unreleased_size > 0);
    ucs_spin_unlock(&cache.lock);
    return any;
}

/* Memory that nobody registers. */
char for_nothing;

} // namespace

struct registration_cache::region {
    ucs_rcache_region_t super;
    memory_handle handle;
};

/* What UCX calls. */
struct registration_cache::callbacks {
    static ucs_status_t mem_reg(void *context, ucs_rcache_t *, void *memory,
                                ucs_rcache_region_t *base,
                                uint16_t flags) noexcept
    {
        auto &cache      = *static_cast<region_cache *>(context);
        const auto start = base->super.start;
        const auto end   = base->super.end;

        /* A merged region that a card cannot map as a whole would have its
         * parts staged that can be mapped; UCX tries without merging then. */
        if ((memory == nullptr) && (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS)) {
            constexpr int needed = PROT_READ | PROT_WRITE;
            if ((ucs_get_mem_prot(start, end) & needed) != needed) {
                return UCS_ERR_INVALID_ADDR;
            }
        }

        auto &handle = reinterpret_cast<region *>(base)->handle;
        new (&handle) memory_handle;
        handle.cached = true;
        if (current.collecting) {
            return UCS_OK;
        }
        if (memory != nullptr) {
            handle.what   = memory_handle::kind::device;
            handle.device = static_cast<device_memory *>(memory);
        } else {
            try {
                handle.host = cache.owner->table_.register_host(
                    reinterpret_cast<void *>(start), end - start);
            } catch (const std::bad_alloc &) {
                handle.~memory_handle();
                return UCS_ERR_NO_MEMORY;
            }
        }
        current.created = true;
        cache.misses.fetch_add(1, std::memory_order_relaxed);
        cache.regions.fetch_add(1, std::memory_order_relaxed);
        cache.bytes.fetch_add(end - start, std::memory_order_relaxed);
        return UCS_OK;
    }

    static void mem_dereg(void *context, ucs_rcache_t *,
                          ucs_rcache_region_t *base) noexcept
    {
        auto &cache = *static_cast<region_cache *>(context);
        auto &self  = *cache.owner;
        if (self.generation_ != util::process_generation()) {
            return; /* the parent's */
        }
        auto &handle = reinterpret_cast<region *>(base)->handle;
        if ((handle.what == memory_handle::kind::host) &&
            (handle.host == nullptr)) {
            return; /* for nothing */
        }
        /* UCX makes room last, after it has made the new region. */
        (current.created ? cache.evictions : cache.invalidations)
            .fetch_add(1, std::memory_order_relaxed);
        cache.regions.fetch_sub(1, std::memory_order_relaxed);
        cache.bytes.fetch_sub(base->super.end - base->super.start,
                              std::memory_order_relaxed);
        if (handle.what == memory_handle::kind::host) {
            self.table_.withdraw_host(*handle.host);
            self.retired_.add(*handle.host);
            if (!current.unmapping) {
                self.tidying_->ask();
            }
        }
        /* Device memory may be freed by now. */
        handle.~memory_handle();
    }

    static void dump_region(void *, ucs_rcache_t *, ucs_rcache_region_t *,
                            char *text, size_t size) noexcept
    {
        if (size > 0) {
            text[0] = '\0';
        }
    }

    static void unmapped(ucm_event_type_t, ucm_event_t *event,
                         void *context) noexcept
    {
        auto &self = *static_cast<registration_cache *>(context);
        if (self.generation_ != util::process_generation()) {
            return;
        }
        const auto start =
            reinterpret_cast<uintptr_t>(event->vm_unmapped.address);
        if (self.table_.withdraw_unmapped(start,
                                          start + event->vm_unmapped.size)) {
            self.tidying_->ask();
        }
    }
};

ucs_status_t registration_cache::open(const settings &wished)
{
    std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ == 0) {
        for (region_cache *cache : {&host_, &device_}) {
            for (auto *number : {&cache->gets, &cache->puts, &cache->misses,
                                 &cache->evictions, &cache->invalidations}) {
                number->store(0);
            }
        }
        settings_   = wished;
        generation_ = util::process_generation();
        if (wished.use != UCS_NO) {
            ucs_status_t status = make_caches();
            if (status != UCS_OK) {
                destroy_caches();
                if (wished.use != UCS_TRY) {
                    ucs_error("gaudi: no registration cache can be made: %s",
                              ucs_status_string(status));
                    return status;
                }
                ucs_debug("gaudi: no registration cache can be made (%s): "
                          "every registration is one of its own",
                          ucs_status_string(status));
            }
        }
    }
    ++users_;
    return UCS_OK;
}

bool registration_cache::join()
{
    std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ == 0) {
        return false;
    }
    ++users_;
    return true;
}

bool registration_cache::is_open()
{
    std::lock_guard<std::mutex> guard(users_lock_);
    return users_ > 0;
}

ucs_status_t registration_cache::make_caches()
{
    tidying_ = std::make_unique<util::delayed_call>([this] { tidy(); });
    ucs_status_t status =
        make_cache(host_, "gaudi_host", UCM_EVENT_VM_UNMAPPED);
    if (status != UCS_OK) {
        return status;
    }
    /* Pointers must not lead to a mapping of memory that was there before. UCX
     * takes regions out of the cache by itself, and before we look. */
    status =
        ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED,
                              static_cast<int>(settings_.rcache.event_prio) + 1,
                              callbacks::unmapped, this);
    if (status != UCS_OK) {
        return status;
    }
    watching_ = true;
    active.store(this);
    static const bool renewing =
        util::run_in_children(base::after_fork_in_child);
    if (!renewing) {
        ucs_warn("gaudi: registrations are not made safe for forked children");
    }
    /* UCX would look for page frames of device addresses. */
    if (ucs_global_opts.rcache_check_pfn != 0) {
        return UCS_OK;
    }
    return make_cache(device_, "gaudi_device", UCM_EVENT_MEM_TYPE_FREE);
}

ucs_status_t registration_cache::make_cache(region_cache &cache,
                                            const char *name,
                                            ucm_event_type_t event)
{
    static const ucs_rcache_ops_t ops = {
        .mem_reg     = callbacks::mem_reg,
        .mem_dereg   = callbacks::mem_dereg,
        .dump_region = callbacks::dump_region,
    };
    ucs_rcache_params_t params{};
    uct_md_set_rcache_params(&params, &settings_.rcache);
    params.region_struct_size = sizeof(region);
    params.max_alignment      = ucs_get_page_size();
    params.ucm_events         = event;
    params.context            = &cache;
    params.ops                = &ops;

    cache.owner = this;
    ucs_status_t status =
        ucs_rcache_create(&params, name, nullptr, &cache.rcache);
    if (status != UCS_OK) {
        cache.rcache = nullptr;
    }
    return status;
}

void registration_cache::destroy_caches()
{
    registration_cache *self = this;
    active.compare_exchange_strong(self, nullptr);
    if (watching_) {
        ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, callbacks::unmapped,
                                this);
        watching_ = false;
    }
    if (tidying_ != nullptr) {
        tidying_->stop();
    }
    for (region_cache *cache : {&host_, &device_}) {
        if (cache->rcache != nullptr) {
            ucs_rcache_destroy(cache->rcache);
            cache->rcache = nullptr;
        }
    }
    tidying_.reset();
    retired_.unmap();
}

bool registration_cache::close()
{
    std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ > 1) {
        --users_;
        return true;
    }
    const uint64_t left =
        uncached_ + (host_.gets - host_.puts) + (device_.gets - device_.puts);
    if (left > 0) {
        ucs_warn("gaudi: %lu registrations were not released", left);
        return false;
    }
    log_statistics("host", memory_kind::host);
    log_statistics("device", memory_kind::device);
    destroy_caches();
    --users_;
    return true;
}

void registration_cache::log_statistics(const char *what,
                                        memory_kind kind) const
{
    const statistics s = statistics_of(kind);
    ucs_debug("gaudi: registrations of %s memory: %lu hits, %lu misses, %lu "
              "evictions, %lu invalidations, %lu regions of %lu bytes left",
              what, s.hits, s.misses, s.evictions, s.invalidations, s.regions,
              s.bytes);
}

registration_cache::statistics
registration_cache::statistics_of(memory_kind kind) const
{
    const region_cache &cache = (kind == memory_kind::host) ? host_ : device_;
    const uint64_t misses     = cache.misses;
    const uint64_t gets       = cache.gets;
    return {(gets > misses) ? gets - misses : 0,
            misses,
            cache.evictions,
            cache.invalidations,
            cache.regions,
            cache.bytes};
}

double registration_cache::overhead() const
{
    return uct_md_rcache_overhead(&settings_.rcache);
}

void registration_cache::choose_range(const card &owner,
                                      uint64_t allocation_start,
                                      uint64_t allocation_end, uint64_t &start,
                                      uint64_t &end) const
{
    const auto length = static_cast<double>(allocation_end - allocation_start);
    const auto memory = static_cast<double>(owner.device().hw_info().dram_size);
    if ((settings_.whole == UCS_CONFIG_ON) ||
        ((settings_.whole == UCS_CONFIG_AUTO) &&
         (length <= memory * settings_.whole_part))) {
        start = allocation_start;
        end   = allocation_end;
    }
}

void registration_cache::unmap_retired()
{
    if (!retired_.empty()) {
        retired_.unmap();
    }
}

/* On a thread of its own, a little after memory was unmapped, or set aside
 * elsewhere than in a call of get or put. */
void registration_cache::tidy()
{
    collect_garbage();
    unmap_retired();
}

/* UCX keeps regions of memory that was unmapped until it makes another one. So
 * it has to make one. Mostly there is room for it, where that garbage was; but
 * UCX may have noted unmapped memory that no region was of, and a cache that is
 * full then gives up the registration that was idle longest. */
void registration_cache::collect_garbage()
{
    ucs_rcache_t *cache = host_.rcache;
    if (!has_garbage(*cache)) {
        return;
    }
    ucs_rcache_region_t *made;
    current             = {true, false, true};
    ucs_status_t status = ucs_rcache_get(
        cache, &for_nothing, 1, PROT_READ | PROT_WRITE, nullptr, &made);
    current.collecting = false;
    if (status == UCS_OK) {
        ucs_rcache_region_invalidate(
            cache, made, [](void *) {}, nullptr);
        ucs_rcache_region_put(cache, made);
    }
    current.unmapping = false;
}

/* A region of the cache, or nullptr. */
memory_handle *registration_cache::get_region(region_cache &cache,
                                              void *address, size_t length,
                                              void *memory)
{
    ucs_rcache_region_t *found;

    current             = {true, false, false};
    ucs_status_t status = ucs_rcache_get(
        cache.rcache, address, length, PROT_READ | PROT_WRITE, memory, &found);
    current.unmapping = false;
    if (current.created && (&cache == &host_) && !tidying_->start()) {
        ucs_debug("gaudi: no thread to clean up");
    }
    unmap_retired();
    if (status != UCS_OK) {
        return nullptr;
    }
    cache.gets.fetch_add(1, std::memory_order_relaxed);
    return &reinterpret_cast<region *>(found)->handle;
}

ucs_status_t registration_cache::get(void *address, size_t length, bool quiet,
                                     memory_handle *&handle_p)
{
    if (!device_table::is_plausible(address, length)) {
        ucs_log(quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                "gaudi: cannot register %zu bytes at %p: they are not in one "
                "address space",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    if (device_table::is_device_address(address)) {
        return get_device(address, length, quiet, handle_p);
    }
    if (host_.rcache != nullptr) {
        handle_p = get_region(host_, address, length, nullptr);
        if (handle_p != nullptr) {
            return UCS_OK;
        }
    }
    auto handle  = std::make_unique<memory_handle>();
    handle->host = table_.register_host(address, length);
    ++uncached_;
    handle_p = handle.release();
    return UCS_OK;
}

bool registration_cache::remember_host(void *address, size_t length)
{
    if (host_.rcache == nullptr) {
        return false;
    }
    memory_handle *handle = get_region(host_, address, length, nullptr);
    return (handle != nullptr) && (put_region(host_, handle) == UCS_OK);
}

ucs_status_t registration_cache::get_device(void *address, size_t length,
                                            bool quiet,
                                            memory_handle *&handle_p)
{
    /* Counted first: from here on it cannot be freed. */
    device_memory *memory = table_.register_device(address, length);
    if (memory == nullptr) {
        ucs_log(quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                "gaudi: cannot register %zu bytes at %p: they are in no "
                "allocation of device memory",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    if (device_.rcache != nullptr) {
        auto start   = reinterpret_cast<uint64_t>(address);
        uint64_t end = start + length;
        choose_range(*memory->owner, memory->start, memory->end, start, end);
        handle_p = get_region(device_, reinterpret_cast<void *>(start),
                              end - start, memory);
        if ((handle_p != nullptr) && (handle_p->device == memory)) {
            return UCS_OK;
        }
        /* Aligned ranges of neighbours can share a region. */
        if (handle_p != nullptr) {
            (void)put_region(device_, handle_p);
        }
    }
    auto *handle = new (std::nothrow) memory_handle;
    if (handle == nullptr) {
        table_.deregister_device(memory);
        return UCS_ERR_NO_MEMORY;
    }
    handle->what   = memory_handle::kind::device;
    handle->device = memory;
    ++uncached_;
    handle_p = handle;
    return UCS_OK;
}

ucs_status_t registration_cache::put_region(region_cache &cache,
                                            memory_handle *handle)
{
    auto *found = reinterpret_cast<region *>(reinterpret_cast<char *>(handle) -
                                             offsetof(region, handle));
    /* The one reference of a region in the page table is the cache's own. */
    if ((__atomic_load_n(&found->super.refcount, __ATOMIC_ACQUIRE) <= 1) &&
        (found->super.flags & UCS_RCACHE_REGION_FLAG_PGTABLE)) {
        return UCS_ERR_INVALID_PARAM;
    }
    cache.puts.fetch_add(1, std::memory_order_relaxed);
    current = {true, false, false};
    if ((handle->what == memory_handle::kind::host) &&
        handle->host->was_refused()) {
        /* Not kept: what could not be mapped may be mappable next time. */
        ucs_rcache_region_invalidate(
            cache.rcache, &found->super, [](void *) {}, nullptr);
    }
    ucs_rcache_region_put(cache.rcache, &found->super);
    current.unmapping = false;
    unmap_retired();
    return UCS_OK;
}

ucs_status_t registration_cache::put(memory_handle *handle)
{
    if (handle->what == memory_handle::kind::host) {
        if (handle->cached) {
            return put_region(host_, handle);
        }
        table_.deregister_host(handle->host);
    } else {
        /* The memory is there as long as this registration is counted. */
        device_memory *memory = handle->device;
        if (handle->cached) {
            ucs_status_t status = put_region(device_, handle);
            if (status == UCS_OK) {
                table_.deregister_device(memory);
            }
            return status;
        }
        table_.deregister_device(memory);
    }
    --uncached_;
    delete handle;
    return UCS_OK;
}

/* UCX's locks are copies, and may be held for ever by threads that are not
 * here: without this the child's own fork could wait for one. The regions are
 * the parent's. */
void registration_cache::after_fork_in_child()
{
    for (region_cache *cache : {&host_, &device_}) {
        if (cache->rcache != nullptr) {
            cache->rcache->params.flags &= ~UCS_RCACHE_FLAG_PURGE_ON_FORK;
            (void)pthread_rwlock_init(&cache->rcache->pgt_lock, nullptr);
            (void)ucs_spinlock_init(&cache->rcache->lock, 0);
        }
    }
}

} // namespace gaudi::base
