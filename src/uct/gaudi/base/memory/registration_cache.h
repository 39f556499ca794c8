/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory handles, and the cache of registrations behind them.
 *
 * One per process: the first memory domain that opens makes the caches, the
 * last one that closes destroys them. Two caches of UCX: one of
 * host memory, whose regions are registrations that cards map on first use, and
 * one of device memory, whose regions are allocations or slices of them. Both
 * are bounded, and merge regions that overlap.
 *
 * A region that nobody uses stays until it is evicted, its memory is unmapped
 * or freed (UCM says so), or the process forks. UCX calls us back for that with
 * its locks held, which are tried for in the application's munmap, and in a
 * fork. So nothing is unmapped there: it is set aside, and the next call of get
 * or put, or close, has the driver unmap it. Where nobody calls these, a
 * thread does, after util::delayed_call::delay; the same for memory that the
 * application unmapped, which UCX itself would keep pinned until the next miss.
 *
 * Without memory events there is no cache, see settings::use: each handle is a
 * registration of its own then, and host memory must stay mapped as long.
 *
 * Threads: any.
 */
#pragma once

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/rcache.h"
#include "util/background_thread.h"
#include "util/locks.h"
#include "util/process.h"

#include <atomic>
#include <memory>
#include <mutex>

extern "C" {
#include <ucs/datastruct/list.h>
}

namespace gaudi::base {

/** What a uct_mem_h of the memory domains points to. */
struct memory_handle {
    enum class kind : uint8_t { allocated, device, host };

    memory_handle() = default;
    ~memory_handle() { *const_cast<volatile uint64_t *>(&tag) = 0; }
    memory_handle(const memory_handle &)            = delete;
    memory_handle &operator=(const memory_handle &) = delete;

    /** Whether it looks like a handle, and one that has not been released. */
    [[nodiscard]] bool is_valid() const { return tag == valid_tag; }

    static constexpr uint64_t valid_tag = 0x6d656d6861756467;

    uint64_t tag = valid_tag;
    kind what    = kind::host;
    bool cached  = false; /**< part of a region of the cache; may be shared */
    union {
        device_memory *device; /**< allocated, or registered */
        host_memory *host = nullptr;
    };
    ucs_list_link_t link{}; /**< the cache's, if it is part of a region */
};

class registration_cache {
public:
    struct settings {
        int use;   /**< ucs_ternary_auto_value_t; UCS_TRY: go without
                        a cache where none can be made */
        int whole; /**< ucs_on_off_auto_value_t */
        rcache_config rcache;
    };

    using number = std::atomic<uint64_t>;

    /** What a cache did since it was made. */
    struct statistics {
        number hits{0}; /**< as UCX counts: threads that meet may lose one */
        number misses{0};
        number evictions{0};     /**< regions that had to make room */
        number invalidations{0}; /**< regions that went for other reasons */
        number regions{0};       /**< that there are now */
        number bytes{0};         /**< in these */
    };

    /** The one of this process. */
    static registration_cache &instance()
    {
        return util::of_this_process<registration_cache>();
    }

    /** Make the caches, or count one more user; the settings of the first one
     *  hold, and its cards are held until the caches end. */
    [[nodiscard]] ucs_status_t open(const settings &wished,
                                    const held_cards &cards);

    /** Count one more user of caches that are there.
     *  @return false when there are none, because nobody has them open. */
    [[nodiscard]] bool join();

    /** Whether anybody has them open. */
    [[nodiscard]] bool is_open();

    /** Undo one open or join.
     *  @return false when handles were not released: nothing is undone then. */
    [[nodiscard]] bool close();

    /**
     * Register memory.
     *
     * Makes no driver call for memory that is cached.
     *
     * @param quiet     Log a failure as a diagnostic, not as an error.
     * @param handle_p  Filled on success.
     * @return UCS_ERR_INVALID_ADDR for device memory that no allocation covers.
     */
    [[nodiscard]] ucs_status_t get(void *address, size_t length, bool quiet,
                                   memory_handle *&handle_p);

    /** Undo a registration.
     *  @return UCS_ERR_INVALID_PARAM when it has been undone before, where that
     *  can be told. */
    [[nodiscard]] ucs_status_t put(memory_handle *handle);

    /** Have host memory in the cache that nobody has registered, so that
     *  transfers find it. It stays as idle regions do. The caller has joined.
     *  @return false when it is not there: without a cache of host memory,
     *  which hears of memory that is unmapped, or without room. */
    [[nodiscard]] bool remember_host(void *address, size_t length);

    /** The range to register for a part of an allocation.
     *  @param[in,out] start,end  The part; grown to the whole if settings say
     *                            so. */
    void choose_range(const device_location &allocation, uint64_t &start,
                      uint64_t &end) const;

    /** Whether registrations of host memory are cached. */
    [[nodiscard]] bool caches_host() const { return host_.exists(); }

    /** Seconds for a look-up; what registering costs a program that comes back.
     */
    [[nodiscard]] double overhead() const
    {
        return rcache_overhead(settings_.rcache);
    }

    [[nodiscard]] const statistics &statistics_of(memory_kind kind) const
    {
        return (kind == memory_kind::host) ? host_ : device_;
    }

    /** Of the parent's, see util/process.h. */
    void after_fork_in_child();

private:
    /* One cache of UCX. */
    struct region_cache final : rcache, statistics {
        explicit region_cache(registration_cache &of) : self(of) {}
        ~region_cache() { destroy(); }
        ucs_status_t create_region(void *storage, uint64_t start, uint64_t end,
                                   void *argument) noexcept override;
        void end_region(void *storage, uint64_t start,
                        uint64_t end) noexcept override;
        void host_unmapped(uint64_t start, uint64_t end) noexcept override;
        [[nodiscard]] uint64_t taken();

        registration_cache &self;
        util::brief_lock lock; /* a leaf: */
        ucs_list_link_t handles{&handles, &handles};
    };

    ucs_status_t make_caches();
    void destroy_caches();
    memory_handle *get_region(region_cache &cache, void *address, size_t length,
                              void *memory);
    [[gnu::noinline]] ucs_status_t get_device(void *address, size_t length,
                                              bool quiet,
                                              memory_handle *&handle_p);
    [[gnu::noinline]] ucs_status_t get_uncached(void *address, size_t length,
                                                memory_handle *&handle_p);
    [[gnu::noinline]] void start_tidying();
    ucs_status_t put_region(region_cache &cache, memory_handle *handle);
    void tidy();
    void collect_garbage();

    /* Made before UCM calls us, where nothing can be allocated. */
    memory_map &map_ = memory_map::instance();
    std::mutex users_lock_; /* opening, closing; held across UCX's calls */
    unsigned users_ = 0;
    held_cards cards_; /* while there are users */
    settings settings_{};
    std::atomic<uint64_t> uncached_{0}; /* handles without a region */
    region_cache host_{*this};
    region_cache device_{*this};
    retired_memory retired_;
    std::unique_ptr<util::delayed_call> tidying_; /* while there are caches */
};

} // namespace gaudi::base
