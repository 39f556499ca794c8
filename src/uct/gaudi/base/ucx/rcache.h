/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A registration cache of UCX.
 *
 * Its regions are ranges of addresses, which UCX merges where they overlap,
 * counts, evicts and forgets when memory goes away. What a region has beside
 * its range is the owner's: some bytes of storage, told by their address.
 *
 * Threads: any, but for making, destroying and forking.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/memory/rcache.h>
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

/** Defaults for some of the variables. UCX refuses a table when one of them is
 *  not there, and what has an alignment from UCX 1.17 on is each region. */
template <typename Parameters>
constexpr const char *make_rcache_defaults()
{
    if constexpr (requires(Parameters cache) { cache.alignment; }) {
        return "RCACHE_MAX_REGIONS=4096;RCACHE_MAX_SIZE=16G;"
               "RCACHE_ADDR_ALIGN=16";
    } else {
        return "RCACHE_MAX_REGIONS=4096;RCACHE_MAX_SIZE=16G";
    }
}
inline constexpr const char *rcache_config_defaults =
    make_rcache_defaults<ucs_rcache_params_t>();

/** What a look-up costs, seconds. */
double rcache_overhead(const rcache_config &config);

/** Whether UCX compares page frames of regions, which device addresses have
 *  not got. */
bool rcache_checks_pages();

/** Whoever derives from it ends it before it goes itself (@ref destroy). */
class rcache {
public:
    /** What host memory, or device memory, has to go through for UCX to forget
     *  its regions. */
    enum class forget_on { unmapping, freeing_device_memory };

    rcache()                          = default;
    rcache(const rcache &)            = delete;
    rcache &operator=(const rcache &) = delete;

    /** Make it. @param storage_bytes  Of each region, for its owner. */
    [[nodiscard]] ucs_status_t create(const char *name, forget_on event,
                                      const rcache_config &config,
                                      size_t storage_bytes);

    /** End all regions, and it, if it was made. */
    void destroy();

    /** Whether it was made. */
    [[nodiscard]] bool exists() const { return cache_ != nullptr; }

    /** Take a region around a range, which is created if there is none.
     *  @param argument  Given to @ref create_region.
     *  @return Its storage, until @ref put; nullptr when there can be none. */
    [[nodiscard]] void *get(void *address, size_t length, void *argument);

    /** Let go of a region. */
    void put(void *storage)
    {
        ucs_rcache_region_put(cache_, to_region(storage));
    }

    /** Have a region end when the last one has let go of it. */
    void invalidate(void *storage);

    /** How often a region is taken; one too many for a moment, while UCX
     *  forgets it. */
    [[nodiscard]] static unsigned uses(const void *storage);

    /** Whether it has regions to end, or unmapped memory to look for regions
     *  of. */
    [[nodiscard]] bool has_garbage();

    /** Called in a forked child, whose locks are copies, and may be held for
     *  ever by threads that are not there: without this the child's own fork
     *  could wait for one. The regions are the parent's. */
    void after_fork_in_child();

protected:
    ~rcache() = default;

    /* Called by UCX, mostly with its locks held, on any thread: */

    /** A region comes to be. @param storage  Not initialized. */
    virtual ucs_status_t create_region(void *storage, uint64_t start,
                                       uint64_t end,
                                       void *argument) noexcept = 0;
    /** A region goes; in a forked child, too. */
    virtual void end_region(void *storage, uint64_t start,
                            uint64_t end) noexcept = 0;
    /** Host memory is unmapped, of which UCX has not heard yet. Called by UCM,
     *  on the thread that unmaps. */
    virtual void host_unmapped(uint64_t, uint64_t) noexcept {}

private:
    struct callbacks;

    /* The storage follows the region. */
    static ucs_rcache_region_t *to_region(void *storage)
    {
        return static_cast<ucs_rcache_region_t *>(storage) - 1;
    }

    static void heard_unmapping(ucm_event_type_t type, ucm_event_t *event,
                                void *self) noexcept;

    ucs_rcache_t *cache_ = nullptr;
    bool of_host_memory_ = false;
    bool listens_        = false; /* to UCM */
};

} // namespace gaudi::base
