/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/registration_cache.h"

#include "uct/gaudi/base/ucx/status.h"

#include <new>
#include <utility>

namespace gaudi::base {

ucs_status_t registration_cache::create_region(void *storage, uint64_t start,
                                               uint64_t end) noexcept
{
    auto *region =
        new (storage) host_region(reinterpret_cast<void *>(start), end - start);
    region->cache_ = this;
    ++numbers_.misses;
    return UCS_OK;
}

void registration_cache::end_region(void *storage) noexcept
{
    if (util::is_cut_off()) {
        return; /* it is the parent's */
    }
    ++(is_full() ? numbers_.evictions : numbers_.invalidations);
    static_cast<host_region *>(storage)->~host_region();
}

ucs_status_t registration_cache::make_cache()
{
    const ucs_status_t status =
        create("gaudi", settings_.rcache, sizeof(host_region));
    if ((status == UCS_OK) || (settings_.use == UCS_TRY)) {
        if (status != UCS_OK) {
            ucs_debug("gaudi: no registration cache can be made (%s): every "
                      "registration is one of its own",
                      ucs_status_string(status));
        }
        return UCS_OK;
    }
    ucs_error("gaudi: no registration cache can be made: %s "
              "(UCX_GAUDI_COPY_RCACHE=n works without)",
              ucs_status_string(status));
    return status;
}

ucs_status_t registration_cache::open(const settings &wanted,
                                      const held_cards &cards)
{
    const std::lock_guard<std::mutex> guard(users_lock_);
    if ((users_ == 0) && !exists()) {
        for (auto *each : {&numbers_.hits, &numbers_.misses,
                           &numbers_.evictions, &numbers_.invalidations}) {
            each->store(0);
        }
        settings_ = wanted;
        if (wanted.use != UCS_NO) {
            const ucs_status_t status = make_cache();
            if (status != UCS_OK) {
                return status;
            }
        }
        cards_ = cards;
    }
    ++users_;
    return UCS_OK;
}

bool registration_cache::join()
{
    const std::lock_guard<std::mutex> guard(users_lock_);
    if (users_ == 0) {
        return false;
    }
    ++users_;
    return true;
}

bool registration_cache::close()
{
    held_cards cards; /* go without the lock */
    const std::lock_guard<std::mutex> guard(users_lock_);
    if (--users_ > 0) {
        return true;
    }
    const uint64_t left = exists() ? rcache::uses() : 0;
    if (left > 0) {
        ucs_warn("gaudi: %lu registrations were not released", left);
        return false;
    }
    ucs_debug("gaudi: registrations of host memory: %lu hits, %lu misses, %lu "
              "evictions, %lu invalidations, %lu regions of %lu bytes left",
              numbers_.hits.load(), numbers_.misses.load(),
              numbers_.evictions.load(), numbers_.invalidations.load(),
              regions(), bytes());
    destroy();
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

ucs_status_t registration_cache::get_other(void *address, size_t length,
                                           bool quiet, memory_handle *&handle_p)
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
    auto *made = new host_region(address, length);
    {
        const std::lock_guard<std::mutex> guard(uncached_lock_);
        uncached_.emplace(&made->handle, made);
    }
    handle_p = &made->handle;
    return UCS_OK;
}

ucs_status_t registration_cache::get_device(void *address, size_t length,
                                            bool quiet,
                                            memory_handle *&handle_p)
{
    memory_map &map       = memory_map::instance();
    device_memory *memory = map.register_device(address, length);
    if (memory == nullptr) {
        card_table::instance().note_acquired_cards();
        memory = map.register_device(address, length);
    }
    if (memory == nullptr) {
        ucs_log(failure_level(quiet),
                "gaudi: cannot register %zu bytes at %p: they are in no "
                "allocation of device memory",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    ++memory->registrations;
    handle_p = &memory->registration;
    return UCS_OK;
}

ucs_status_t registration_cache::put_device(device_memory &memory)
{
    unsigned count = memory.registrations.load();
    while ((count != 0) &&
           !memory.registrations.compare_exchange_weak(count, count - 1)) {}
    if (count == 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    memory.put();
    return UCS_OK;
}

} // namespace gaudi::base
