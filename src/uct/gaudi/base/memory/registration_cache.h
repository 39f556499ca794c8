/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Registrations of memory, for memory domains and transfers.
 *
 * Host memory: a region of one cache of UCX, which the process has as long as
 * anybody has it open. Device memory: a count of its allocation.
 *
 * Where there are no memory events, or settings say so, there is no cache: each
 * registration of host memory is one of its own, which only its handle leads
 * to, and memory must stay mapped as long.
 *
 * Threads: any.
 */
#pragma once

#include "uct/gaudi/base/memory/host_region.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "util/process.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace gaudi::base {

class registration_cache final : private rcache {
public:
    struct settings {
        int use;   /**< ucs_ternary_auto_value_t; UCS_TRY: go without
                        a cache where none can be made */
        int whole; /**< ucs_on_off_auto_value_t */
        rcache_config rcache;
    };

    /** Since the cache was made. */
    struct statistics {
        std::atomic<uint64_t> hits{0};
        std::atomic<uint64_t> misses{0};
        std::atomic<uint64_t> evictions{0};     /**< regions that made room */
        std::atomic<uint64_t> invalidations{0}; /**< regions that went for
                                                     other reasons */
    };

    ~registration_cache() { destroy(); }

    /** The one of this process. */
    static registration_cache &instance()
    {
        return util::of_this_process<registration_cache>();
    }

    /** Make the cache, or count one more user. The settings of the first one
     *  hold, and its cards are held until the cache ends. */
    [[nodiscard]] ucs_status_t open(const settings &wanted,
                                    const held_cards &cards);

    /** Count one more user of what is open. @return false when nothing is. */
    [[nodiscard]] bool join();

    /** Whether @ref join would succeed. Costs a load. */
    [[nodiscard]] bool is_open() const
    {
        return users_.load(std::memory_order_relaxed) > 0;
    }

    /** Undo one open or join. The last one ends the cache; where registrations
     *  were not released, which it says, that is left to the next last one.
     *  @return false then. */
    [[nodiscard]] bool close();

    /**
     * Register memory. Makes no driver call.
     *
     * @param quiet     Log a failure as a diagnostic, not as an error.
     * @param handle_p  Filled on success.
     * @return UCS_ERR_INVALID_ADDR for device memory that no allocation covers.
     */
    [[nodiscard]] ucs_status_t get(void *address, size_t length, bool quiet,
                                   memory_handle *&handle_p)
    {
        if (ucs_likely(exists() && !memory_map::is_device(address) &&
                       memory_map::is_plausible(address, length))) {
            const uint64_t missed =
                numbers_.misses.load(std::memory_order_relaxed);
            auto *region =
                static_cast<host_region *>(rcache::get(address, length));
            if (ucs_likely(region != nullptr)) {
                /* Threads that meet may lose one. */
                if (missed == numbers_.misses.load(std::memory_order_relaxed)) {
                    numbers_.hits.store(
                        numbers_.hits.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
                }
                handle_p = &region->handle;
                return UCS_OK;
            }
        }
        return get_other(address, length, quiet, handle_p);
    }

    /** Undo a registration. @return UCS_ERR_INVALID_PARAM when it has been
     *  undone before, where that can be told. */
    [[nodiscard]] static ucs_status_t put(memory_handle &handle)
    {
        if (ucs_unlikely(handle.what != memory_handle::kind::host)) {
            return put_device(*handle.device);
        }
        if (ucs_unlikely(handle.host->is_unused())) {
            return UCS_ERR_INVALID_PARAM;
        }
        if (handle.host->cache_ == nullptr) {
            instance().remove_uncached(handle);
        }
        handle.host->put();
        return UCS_OK;
    }

    /** The registration of a handle that UCT was passed, without a cache. UCP's
     *  old protocols pass anything with a zero copy: a domain that needs no
     *  handles gets what was in their request before.
     *  @return nullptr: it is none. */
    [[nodiscard]] host_region *find_uncached(const void *handle)
    {
        if (ucs_likely(exists())) {
            return nullptr;
        }
        const std::lock_guard<std::mutex> guard(uncached_lock_);
        const auto found = uncached_.find(handle);
        return (found == uncached_.end()) ? nullptr : found->second;
    }

    /** The cached registration of host memory, with a reference. The caller
     *  has the cache open.
     *  @param create  Have it registered where it is not.
     *  @return nullptr: there is none. */
    [[nodiscard]] host_region *find_host(void *address, size_t length,
                                         bool create)
    {
        if (!exists()) {
            return nullptr;
        }
        return static_cast<host_region *>(
            create ? rcache::get(address, length)
                   : find(reinterpret_cast<uintptr_t>(address), length));
    }

    /** The range to register for a part of an allocation.
     *  @param[in,out] start,end  The part; grown to the whole if settings say
     *                            so. */
    void choose_range(const device_location &allocation, uint64_t &start,
                      uint64_t &end) const;

    /** Whether registrations of host memory are cached. */
    [[nodiscard]] bool caches_host() const { return exists(); }

    /** Seconds for a look-up; what registering costs a program that comes back.
     */
    [[nodiscard]] double overhead() const
    {
        return rcache_overhead(settings_.rcache);
    }

    [[nodiscard]] const statistics &numbers() const { return numbers_; }
    using rcache::bytes;
    using rcache::regions;

    /** Of the parent's, see util/process.h. */
    using rcache::after_fork_in_child;

private:
    ucs_status_t create_region(void *storage, uint64_t start,
                               uint64_t end) noexcept override;
    void end_region(void *storage) noexcept override;
    ucs_status_t make_cache();
    [[gnu::noinline]] ucs_status_t get_other(void *address, size_t length,
                                             bool quiet,
                                             memory_handle *&handle_p);
    void remove_uncached(const memory_handle &handle)
    {
        const std::lock_guard<std::mutex> guard(uncached_lock_);
        uncached_.erase(&handle);
    }
    static ucs_status_t get_device(void *address, size_t length, bool quiet,
                                   memory_handle *&handle_p);
    [[gnu::noinline]] static ucs_status_t put_device(device_memory &memory);

    std::mutex users_lock_; /* opening, closing; held across UCX's calls */
    std::atomic<unsigned> users_{0};
    held_cards cards_; /* while there are users, or registrations were left */
    settings settings_{};
    statistics numbers_;
    std::mutex uncached_lock_;                                 /* leaf */
    std::unordered_map<const void *, host_region *> uncached_; /* by handle */
};

} // namespace gaudi::base
