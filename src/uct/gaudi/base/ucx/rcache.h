/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A registration cache of UCX, of host memory.
 *
 * Its regions are ranges of addresses, which UCX merges where they overlap,
 * counts, evicts, and drops when memory is unmapped. Behind each is storage of
 * the cache's owner, whose address stands for the region.
 *
 * Threads: any, but for creating, destroying and forking.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/memory/rcache.h>
#include <ucs/memory/rcache_int.h>
}

namespace gaudi::base {

/** The variables RCACHE_*, as UCX parses them, and the table that does. */
#if UCT_API < UCT_VERSION(1, 16)
using rcache_config = uct_md_rcache_config_t;
inline constexpr ucs_config_field_t *rcache_config_table =
    uct_md_config_rcache_table;
#else
using rcache_config = ucs_rcache_config_t;
inline constexpr ucs_config_field_t *rcache_config_table =
    ucs_config_rcache_table;
#endif

/** Regions are aligned as malloc aligns: what lies side by side is not merged.
 *  Where a variable says so, this is its default. */
inline constexpr size_t rcache_alignment = 16;

/** UCP rounds what it registers to multiples of 16, and in UCX 1.16 to those of
 *  its variable RCACHE_ADDR_ALIGN, which is a page at most. */
inline constexpr size_t least_rounding = 16;
inline constexpr size_t most_rounding =
    UCT_API == UCT_VERSION(1, 16) ? 4096 : least_rounding;

/** Defaults for some of the variables. More than 64 MB that are unmapped but
 *  still pinned have UCX's thread drop them, in all releases. UCX refuses a
 * table when one of them is not there, and what has an alignment from UCX 1.17
 * on is each region. */
template <typename Parameters>
constexpr const char *make_rcache_defaults()
{
    if constexpr (requires(Parameters cache) { cache.alignment; }) {
        return "RCACHE_MAX_REGIONS=4096;RCACHE_MAX_SIZE=16G;"
               "RCACHE_MAX_UNRELEASED=64M;RCACHE_ADDR_ALIGN=16";
    } else {
        return "RCACHE_MAX_REGIONS=4096;RCACHE_MAX_SIZE=16G;"
               "RCACHE_MAX_UNRELEASED=64M";
    }
}
inline constexpr const char *rcache_config_defaults =
    make_rcache_defaults<ucs_rcache_params_t>();

/** What a look-up costs, seconds. */
double rcache_overhead(const rcache_config &config);

/**
 * Owners derive from it, and call @ref destroy in their destructors.
 *
 * UCX calls @ref end_region with its lock of the cache held, and in the handler
 * of a fork, but never in an application's munmap: there it puts regions on a
 * list, which the next miss or UCX's own clean-up works off. So a driver may be
 * called. Memory events of such a call are only queued, since the lock is
 * taken.
 */
class rcache {
public:
    rcache()                          = default;
    rcache(const rcache &)            = delete;
    rcache &operator=(const rcache &) = delete;

    /** Create it. @param storage_bytes  Per region, for its owner. */
    [[nodiscard]] ucs_status_t
    create(const char *name, const rcache_config &config, size_t storage_bytes);

    /** End all regions, and the cache, if it was created. */
    void destroy();

    [[nodiscard]] bool exists() const { return cache_ != nullptr; }

    /** Take a reference to the region around a range, which is created where
     *  there is none. @return Its storage, or nullptr. */
    [[nodiscard]] void *get(void *address, size_t length)
    {
        ucs_rcache_region_t *found;
        return ucs_likely(get(cache_, address, length, &found) == UCS_OK)
                   ? found + 1
                   : nullptr;
    }

    /** The same, but create none. */
    [[nodiscard]] void *find(uint64_t start, size_t length);

    /** One more reference to a region that somebody holds. @return false when
     *  (a part of) its memory was unmapped or is in another region by now. */
    [[nodiscard]] bool hold(void *storage)
    {
        ucs_rcache_region_t *region = to_region(storage);
        if (ucs_unlikely(!(region->flags & UCS_RCACHE_REGION_FLAG_PGTABLE) ||
                         has_unmapped(cache_))) {
            return false;
        }
        ucs_rcache_region_hold(cache_, region);
        return true;
    }

    void put(void *storage)
    {
        ucs_rcache_region_put(cache_, to_region(storage));
    }

    /** Have a region end with its last reference. */
    void invalidate(void *storage);

    /** References to a region, without the cache's own. */
    [[nodiscard]] static unsigned uses(const void *storage)
    {
        const ucs_rcache_region_t *region =
            to_region(const_cast<void *>(storage));
        /* UCX clears the flag first. */
        const uint32_t all =
            __atomic_load_n(&region->refcount, __ATOMIC_ACQUIRE);
        return all - (region->flags & UCS_RCACHE_REGION_FLAG_PGTABLE ? 1 : 0);
    }

    /** References to all regions. */
    [[nodiscard]] uint64_t uses();

    [[nodiscard]] uint64_t regions() const;
    [[nodiscard]] uint64_t bytes() const;

    /** Whether regions have to go to make room. */
    [[nodiscard]] bool is_full() const;

    /** Called in a forked child, where another thread's lock would stay held:
     *  without this the child's own fork could wait for one. */
    void after_fork_in_child();

protected:
    ~rcache() = default;

    /* Called by UCX on any thread, with its lock of the cache held. */

    /** @param storage  Not initialized. */
    virtual ucs_status_t create_region(void *storage, uint64_t start,
                                       uint64_t end) noexcept = 0;
    /** In a forked child, too. */
    virtual void end_region(void *storage) noexcept = 0;

private:
    struct callbacks;

    /* The caches of UCX 1.16 and before have one alignment for all regions. */
    template <typename Cache>
    static ucs_status_t get(Cache *cache, void *address, size_t length,
                            ucs_rcache_region_t **region_p)
    {
        constexpr int access = PROT_READ | PROT_WRITE;
        if constexpr (requires { cache->params.alignment; }) {
            return ucs_rcache_get(cache, address, length, access, nullptr,
                                  region_p);
        } else {
            return ucs_rcache_get(cache, address, length, rcache_alignment,
                                  access, nullptr, region_p);
        }
    }

    /* Whether UCX has to look for regions of memory that was unmapped, which
     * it has in a queue, or from UCX 1.22 on in a tree. */
    template <typename Cache>
    static bool has_unmapped(const Cache *cache)
    {
        if constexpr (requires { cache->inv_q; }) {
            return !ucs_queue_is_empty(&cache->inv_q);
        } else {
            return !ucs_interval_tree_is_empty(&cache->inv_tree);
        }
    }

    /* The storage follows the region. */
    static ucs_rcache_region_t *to_region(void *storage)
    {
        return static_cast<ucs_rcache_region_t *>(storage) - 1;
    }

    void drop_unmapped();

    ucs_rcache_t *cache_ = nullptr;
};

} // namespace gaudi::base
