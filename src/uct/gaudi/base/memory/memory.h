/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the memory map knows: device memory, and host memory that cards can
 * reach.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/cards/card.h"
#include "util/interval_tree.h"
#include "util/process.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace gaudi::base {

enum class memory_kind { host, device };

/** A range of device addresses that the driver mapped in one piece: what
 *  dma-bufs are made of. */
struct device_backing {
    device_backing(card &card_of, uint64_t mapped_va, uint64_t mapped_size)
        : owner(card_of), va(mapped_va), size(mapped_size)
    {}

    card &owner;
    const uint64_t va;   /**< as the driver gave it */
    const uint64_t size; /**< bytes, whole DRAM pages */

    /** Whether a dma-buf can be of less than all of it. */
    [[nodiscard]] bool exports_parts() const
    {
        return owner.device().capabilities().exports_parts;
    }
};

/** Device memory that mem_alloc gave out, that the application mapped itself,
 * or a dma-buf that was imported. The range is of device addresses. Whoever has
 * it in the memory map derives from it; the destructor gives it back. */
struct device_memory : util::interval_node {
    virtual ~device_memory() = default;

    card *owner = nullptr;             /* imported: the importer */
    held_cards cards;                  /* none for the application's */
    device_backing *backing = nullptr; /* nullptr: cannot be exported */
    bool imported           = false;   /* a dma-buf, or part of one */
    bool of_application     = false;   /* mapped by it, where it liked */
    bool exact = true; /* else all addresses of its card, on which the
                          application has memory that was mapped unseen */
    std::atomic<unsigned> registrations{0}; /* mem_reg of it, not yet undone */
    std::atomic<bool> exported{false};      /* a dma-buf was made of it */
    bool gone = false; /* only registrations keep it; the memory map's, under
                          its lock */
};

/** Where cards find one piece of memory: each that uses it maps it once.
 *
 *  Readers take no lock. One card maps at a time; who takes all entries away is
 *  the last one to use it. */
class card_mappings {
public:
    /** What came of it for a card; never changed after that. */
    struct entry {
        const card *user = nullptr;
        int result       = 0; /**< 0, or -errno of the driver */
        held_cards cards;     /**< outlive the mapping */
        shim::registration mapping;
        std::unique_ptr<entry> next;
    };

    card_mappings() = default;
    ~card_mappings() { (void)take(); }
    card_mappings(const card_mappings &)            = delete;
    card_mappings &operator=(const card_mappings &) = delete;

    /**
     * The device address of the first byte on a card.
     *
     * @param map   Called with a mapping to fill when nothing is known of the
     *              card: has the driver map the memory. What it returns, 0 or
     *              -errno, is kept, and the driver not asked again.
     * @return 0 or -errno.
     */
    template <typename Map>
    int va_on(const card &user, Map &&map, uint64_t &va_p)
    {
        const entry *known = find(user);
        if (known == nullptr) {
            const std::lock_guard<std::mutex> guard(lock_);
            known = find(user);
            if (known == nullptr) {
                std::unique_ptr<entry> fresh(new (std::nothrow) entry);
                if (fresh == nullptr) {
                    return -ENOMEM;
                }
                fresh->result = map(fresh->mapping);
                fresh->user   = &user;
                fresh->cards  = user.hold();
                known         = add(std::move(fresh));
            }
        }
        va_p = known->mapping.address();
        return known->result;
    }

    /** All of them, for the caller to destroy; the list is empty. */
    [[nodiscard]] std::unique_ptr<entry> take()
    {
        return std::unique_ptr<entry>(first_.exchange(nullptr));
    }

private:
    [[nodiscard]] const entry *find(const card &user) const
    {
        const entry *known = first_.load(std::memory_order_acquire);
        while ((known != nullptr) && (known->user != &user)) {
            known = known->next.get();
        }
        return known;
    }

    const entry *add(std::unique_ptr<entry> fresh)
    {
        fresh->next.reset(first_.load(std::memory_order_relaxed));
        entry *made = fresh.release();
        first_.store(made, std::memory_order_release);
        return made;
    }

    std::mutex lock_; /* adds entries; held across the driver call */
    std::atomic<entry *> first_{nullptr};
};

/** Registered host memory: pinned and mapped once for each card that uses it.
 *  Counted: by its registration and by every transfer that uses it. The last
 *  one to let go unmaps it, so a transfer that found it by its pointer stays
 *  valid when another thread deregisters it meanwhile. */
class host_memory : public util::interval_node {
public:
    /** @param is_staging  It is the transports' own. */
    host_memory(void *address, size_t length, bool is_staging)
        : util::interval_node(reinterpret_cast<uintptr_t>(address), length),
          is_staging_(is_staging)
    {}

    /** The device address of the first byte on a card; mapped on first use
     *  there.
     *  @return 0 or -errno. */
    [[nodiscard]] int va_on(const card &user, uint64_t &va_p);

    /** Whether a card could not map it. */
    [[nodiscard]] bool was_refused() const
    {
        return refused_.load(std::memory_order_relaxed);
    }

    void get() { references_.fetch_add(1, std::memory_order_relaxed); }

    /** Let go of it; the last one calls the driver. */
    void put()
    {
        if (drop()) {
            delete this;
        }
    }

    /** Whether pointers lead to it; the memory map's, under its lock. */
    bool listed = false;

private:
    friend class retired_memory;

    ~host_memory() = default;

    /* @return Whether nobody else has it. */
    [[nodiscard]] bool drop()
    {
        return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    const bool is_staging_;
    std::atomic<unsigned> references_{1};
    std::atomic<bool> refused_{false};
    card_mappings mappings_;
    host_memory *next_retired_ = nullptr;
};

/** Registrations that have ended where the driver must not be called; the next
 *  one who may does. */
class retired_memory {
public:
    /** Let go of memory; without locks or driver calls. */
    void add(host_memory &memory);

    /** Have the driver unmap all there is. Called without locks; costs a load
     *  when that is nothing. */
    void unmap()
    {
        if (first_.load(std::memory_order_relaxed) != nullptr) {
            unmap_all();
        }
    }

private:
    void unmap_all();

    std::atomic<host_memory *> first_{nullptr};
};

} // namespace gaudi::base
