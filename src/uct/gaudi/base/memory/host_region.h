/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A registration of host memory: a region of UCX's cache, or one of its own.
 *
 * Registering makes no driver call. A card pins and maps the memory when it
 * uses it for the first time, and the last reference unmaps it: of whoever
 * registered it, of each operation, and of the cache until UCX drops it.
 *
 * Threads: any. Readers take no lock; one card maps at a time.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/ucx/rcache.h"

#include <memory>
#include <mutex>

namespace gaudi::base {

class host_region : public util::interval_node {
public:
    enum class kind { registered, staging };

    /** @param what  Staging memory is the transports' own: every card maps
     *               it. */
    host_region(const void *address, size_t length,
                kind what = kind::registered)
        : util::interval_node(reinterpret_cast<uintptr_t>(address), length),
          kind_(what)
    {}

    /** The device address of the first byte on a card.
     *  @return 0 or -errno: that memory has to be staged. The driver is asked
     *          once for each card. */
    [[nodiscard]] int va_on(const card &user, uint64_t &va_p);

    /** One more reference, for a holder of another one. @return false when the
     *  memory was unmapped, or is in another region by now. */
    [[nodiscard]] bool hold()
    {
        if (cache_ != nullptr) {
            return cache_->hold(this);
        }
        references_.fetch_add(1, std::memory_order_relaxed);
        return true;
    }

    /** Undo a @ref hold, or the first reference. */
    void put()
    {
        if (ucs_unlikely(refused_.load(std::memory_order_relaxed)) &&
            (cache_ != nullptr)) {
            cache_->invalidate(this); /* it may be mappable next time */
        }
        if (cache_ != nullptr) {
            cache_->put(this);
        } else if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }

    /** Whether the handle was released more often than it was given out, as
     *  far as that can be told. */
    [[nodiscard]] bool is_unused() const
    {
        return (cache_ != nullptr) && (rcache::uses(this) == 0);
    }

    [[nodiscard]] bool covers(uint64_t address, size_t length) const
    {
        return (address >= start) && (address <= end) &&
               (length <= end - address);
    }

    memory_handle handle{*this};

private:
    friend class registration_cache;

    struct mapping {
        const card *user = nullptr;
        int result       = 0; /* of the driver */
        held_cards cards;     /* outlive the mapping */
        shim::registration memory;
        std::unique_ptr<mapping> next;
    };

    ~host_region() { delete first_.load(); }

    [[nodiscard]] const mapping *find(const card &user) const
    {
        const mapping *known = first_.load(std::memory_order_acquire);
        while ((known != nullptr) && (known->user != &user)) {
            known = known->next.get();
        }
        return known;
    }
    [[nodiscard]] const mapping *map(const card &user);

    const kind kind_;
    std::atomic<bool> refused_{false};    /* by a card */
    std::atomic<unsigned> references_{1}; /* where there is no cache */
    rcache *cache_ = nullptr;
    std::mutex mapping_lock_; /* held across the driver call */
    std::atomic<mapping *> first_{nullptr};
};

} // namespace gaudi::base
