/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/registration_cache.h"

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/status.h"

#include <chrono>
#include <new>
#include <thread>
#include <utility>

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

/* Memory that nobody registers. */
char for_nothing;

} // namespace

ucs_status_t registration_cache::region_cache::create_region(
    void *storage, uint64_t start, uint64_t end, void *argument) noexcept
{
    auto &handle  = *new (storage) memory_handle;
    handle.cached = true;
    if (current.collecting) {
        return UCS_OK;
    }
    if (argument != nullptr) {
        handle.what   = memory_handle::kind::device;
        handle.device = static_cast<device_memory *>(argument);
    } else {
        try {
            handle.host = self.map_.register_host(
                reinterpret_cast<void *>(start), end - start);
        } catch (const std::bad_alloc &) {
            handle.~memory_handle();
            return UCS_ERR_NO_MEMORY;
        }
    }
    current.created = true;
    ++misses;
    ++regions;
    bytes += end - start;
    const std::lock_guard<util::brief_lock> guard(lock);
    ucs_list_add_head(&handles, &handle.link);
    return UCS_OK;
}

void registration_cache::region_cache::end_region(void *storage, uint64_t start,
                                                  uint64_t end) noexcept
{
    if (util::is_cut_off()) {
        return;
    }
    auto &handle = *static_cast<memory_handle *>(storage);
    if ((handle.what == memory_handle::kind::host) &&
        (handle.host == nullptr)) {
        return; /* for nothing */
    }
    /* UCX makes room last, after it has made the new region. */
    ++(current.created ? evictions : invalidations);
    --regions;
    bytes -= end - start;
    {
        const std::lock_guard<util::brief_lock> guard(lock);
        ucs_list_del(&handle.link);
    }
    if (handle.what == memory_handle::kind::host) {
        self.map_.withdraw_host(*handle.host);
        self.retired_.add(*handle.host);
        if (!current.unmapping) {
            self.tidying_->ask();
        }
    }
    /* Device memory may be freed by now. */
    handle.~memory_handle();
}

/* Pointers must not lead to a mapping of memory that was there before. UCX
 * takes regions out of the cache by itself, and before we look. */
void registration_cache::region_cache::host_unmapped(uint64_t start,
                                                     uint64_t end) noexcept
{
    if (!util::is_cut_off() && self.map_.withdraw_unmapped(start, end)) {
        self.tidying_->ask();
    }
}

/* How many registrations were not undone. */
uint64_t registration_cache::region_cache::taken()
{
    const std::lock_guard<util::brief_lock> guard(lock);
    uint64_t all = 0;
    const memory_handle *handle;
    ucs_list_for_each(handle, &handles, link)
    {
        all += uses(handle);
    }
    return all;
}

void registration_cache::after_fork_in_child()
{
    host_.rcache::after_fork_in_child();
    device_.rcache::after_fork_in_child();
}

ucs_status_t registration_cache::open(const settings &wished,
                                      const held_cards &cards)
{
    std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ == 0) {
        for (region_cache *cache : {&host_, &device_}) {
            for (auto *reset : {&cache->hits, &cache->misses, &cache->evictions,
                                &cache->invalidations}) {
                reset->store(0);
            }
        }
        settings_ = wished;
        if (wished.use != UCS_NO) {
            ucs_status_t status = make_caches();
            if (status != UCS_OK) {
                destroy_caches();
                if (wished.use != UCS_TRY) {
                    ucs_error("gaudi: no registration cache can be made: %s "
                              "(UCX_GAUDI_COPY_RCACHE=n works without)",
                              ucs_status_string(status));
                    return status;
                }
                ucs_debug("gaudi: no registration cache can be made (%s): "
                          "every registration is one of its own",
                          ucs_status_string(status));
            }
        }
    }
    if (users_++ == 0) {
        cards_ = cards;
    }
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
    const ucs_status_t status =
        host_.create("gaudi_host", rcache::forget_on::unmapping,
                     settings_.rcache, sizeof(memory_handle));
    if ((status != UCS_OK) || rcache_checks_pages()) {
        return status;
    }
    return device_.create("gaudi_device",
                          rcache::forget_on::freeing_device_memory,
                          settings_.rcache, sizeof(memory_handle));
}

void registration_cache::destroy_caches()
{
    if (tidying_ != nullptr) {
        tidying_->stop();
    }
    host_.destroy();
    device_.destroy();
    tidying_.reset();
    retired_.unmap();
}

bool registration_cache::close()
{
    held_cards cards; /* go without the lock */
    std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ > 1) {
        --users_;
        return true;
    }
    uint64_t left = 0;
    for (unsigned looks = 0; looks < 100; ++looks) {
        left = uncached_ + host_.taken() + device_.taken();
        if (left == 0) {
            break;
        }
        /* One too many for a moment, see rcache::uses. */
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (left > 0) {
        ucs_warn("gaudi: %lu registrations were not released", left);
        return false;
    }
    for (const memory_kind kind : {memory_kind::host, memory_kind::device}) {
        const statistics &s = statistics_of(kind);
        ucs_debug("gaudi: registrations of %s memory: %lu hits, %lu misses, "
                  "%lu evictions, %lu invalidations, %lu regions of %lu bytes "
                  "left",
                  (kind == memory_kind::host) ? "host" : "device",
                  s.hits.load(), s.misses.load(), s.evictions.load(),
                  s.invalidations.load(), s.regions.load(), s.bytes.load());
    }
    destroy_caches();
    --users_;
    cards = std::move(cards_);
    return true;
}

/* Largest allocation that AUTO registers as a whole, as a part of its card's
 * memory: mapping it for a NIC takes as long as all of it needs. */
static constexpr double whole_part = 0.1;

void registration_cache::choose_range(const device_location &allocation,
                                      uint64_t &start, uint64_t &end) const
{
    const auto length = static_cast<double>(allocation.end - allocation.start);
    const auto memory = static_cast<double>(
        allocation.owner->device().capabilities().memory_bytes);
    if ((settings_.whole == UCS_CONFIG_ON) ||
        ((settings_.whole == UCS_CONFIG_AUTO) &&
         (length <= memory * whole_part))) {
        start = allocation.start;
        end   = allocation.end;
    }
}

/* On a thread of its own, a little after memory was unmapped, or set aside
 * elsewhere than in a call of get or put. */
void registration_cache::tidy()
{
    collect_garbage();
    retired_.unmap();
}

/* UCX keeps regions of memory that was unmapped until it makes another one. So
 * it has to make one. Mostly there is room for it, where that garbage was; but
 * UCX may have noted unmapped memory that no region was of, and a cache that is
 * full then gives up the registration that was idle longest. */
void registration_cache::collect_garbage()
{
    if (!host_.has_garbage()) {
        return;
    }
    current            = {true, false, true};
    void *region       = host_.get(&for_nothing, 1, nullptr);
    current.collecting = false;
    if (region != nullptr) {
        host_.invalidate(region);
        host_.put(region);
    }
    current.unmapping = false;
}

void registration_cache::start_tidying()
{
    const std::string problem = tidying_->start();
    if (!problem.empty()) {
        ucs_debug("gaudi: no thread to clean up: %s", problem.c_str());
    }
}

/* Of a region of the cache; nullptr when there can be none. */
memory_handle *registration_cache::get_region(region_cache &cache,
                                              void *address, size_t length,
                                              void *memory)
{
    if (!cache.exists()) {
        return nullptr;
    }
    current           = {true, false, false};
    void *region      = cache.get(address, length, memory);
    current.unmapping = false;
    if (current.created && (&cache == &host_)) {
        start_tidying();
    }
    retired_.unmap();
    if ((region != nullptr) && !current.created) {
        cache.hits.store(cache.hits.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
    }
    return static_cast<memory_handle *>(region);
}

[[gnu::flatten]] ucs_status_t registration_cache::get(void *address,
                                                      size_t length, bool quiet,
                                                      memory_handle *&handle_p)
{
    if (!memory_map::is_plausible(address, length)) {
        ucs_log(failure_level(quiet),
                "gaudi: cannot register %zu bytes at %p: they are not in one "
                "address space",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    if (memory_map::is_device(address)) {
        return get_device(address, length, quiet, handle_p);
    }
    handle_p = get_region(host_, address, length, nullptr);
    return (handle_p != nullptr) ? UCS_OK
                                 : get_uncached(address, length, handle_p);
}

ucs_status_t registration_cache::get_uncached(void *address, size_t length,
                                              memory_handle *&handle_p)
{
    auto handle  = std::make_unique<memory_handle>();
    handle->host = map_.register_host(address, length);
    ++uncached_;
    handle_p = handle.release();
    return UCS_OK;
}

bool registration_cache::remember_host(void *address, size_t length)
{
    memory_handle *handle = get_region(host_, address, length, nullptr);
    return (handle != nullptr) && (put_region(host_, handle) == UCS_OK);
}

ucs_status_t registration_cache::get_device(void *address, size_t length,
                                            bool quiet,
                                            memory_handle *&handle_p)
{
    /* Counted first: from here on it cannot be freed. */
    device_memory *memory = map_.register_device(address, length);
    if (memory == nullptr) {
        card_table::instance().note_acquired_cards();
        memory = map_.register_device(address, length);
    }
    if (memory == nullptr) {
        ucs_log(failure_level(quiet),
                "gaudi: cannot register %zu bytes at %p: they are in no "
                "allocation of device memory",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    auto start   = reinterpret_cast<uint64_t>(address);
    uint64_t end = start + length;
    choose_range(device_location(*memory), start, end);
    handle_p = get_region(device_, reinterpret_cast<void *>(start), end - start,
                          memory);
    if ((handle_p != nullptr) && (handle_p->device == memory)) {
        return UCS_OK;
    }
    /* Aligned ranges of neighbours can share a region. */
    if (handle_p != nullptr) {
        (void)put_region(device_, handle_p);
    }
    auto *handle = new (std::nothrow) memory_handle;
    if (handle == nullptr) {
        map_.deregister_device(memory);
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
    if (rcache::uses(handle) == 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    current = {true, false, false};
    if ((handle->what == memory_handle::kind::host) &&
        handle->host->was_refused()) {
        /* Not kept: what could not be mapped may be mappable next time. */
        cache.invalidate(handle);
    }
    cache.put(handle);
    current.unmapping = false;
    retired_.unmap();
    return UCS_OK;
}

[[gnu::flatten]] ucs_status_t registration_cache::put(memory_handle *handle)
{
    const bool is_host    = (handle->what == memory_handle::kind::host);
    device_memory *memory = is_host ? nullptr : handle->device;
    ucs_status_t status   = UCS_OK;
    if (handle->cached) {
        status = put_region(is_host ? host_ : device_, handle);
    } else {
        if (is_host) {
            map_.deregister_host(handle->host);
        }
        --uncached_;
        delete handle;
    }
    /* The memory is there as long as this registration is counted. */
    if ((status == UCS_OK) && (memory != nullptr)) {
        map_.deregister_device(memory);
    }
    return status;
}

} // namespace gaudi::base
