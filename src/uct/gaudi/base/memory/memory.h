/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the memory map knows: device memory, and host memory that cards can
 * reach.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/import_windows.h"
#include "util/interval_tree.h"
#include "util/process.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace gaudi::base {

enum class memory_kind { host, device };

/** What another part keeps for a backing; destroyed before the driver is asked
 *  to unmap that. */
class backing_export {
public:
    virtual ~backing_export() = default;
};

/** A range of device addresses that the driver mapped in one piece: what
 *  dma-bufs are made of, and what other cards of the process can reach.
 *  Threads: any. One mutex, held across driver calls, when a card reaches it
 *  for the first time; nothing that UCM calls takes it. */
class device_backing {
public:
    device_backing(card &card_of, uint64_t mapped_va, uint64_t mapped_size)
        : owner(card_of), va(mapped_va), size(mapped_size),
          peers_(va, size, exports_parts(), false)
    {}

    card &owner;
    const uint64_t va;   /**< as the driver gave it */
    const uint64_t size; /**< bytes, whole DRAM pages */

    /** Whether a dma-buf can be of less than all of it. */
    [[nodiscard]] bool exports_parts() const
    {
        return owner.device().capabilities().exports_parts;
    }

    /**
     * Where another card finds a range of it, of whose window it has the memory
     * imported when it uses that for the first time.
     *
     * @return 0; -EOPNOTSUPP when the driver cannot export or import; else
     *         -errno. A refusal is kept and the driver not asked again, but for
     *         lack of memory and the like.
     */
    [[nodiscard]] int va_on(const card &user, uint64_t address, size_t length,
                            uint64_t &va_p);

    /**
     * Use what is kept for it.
     *
     * @param make  Called with this backing when nothing is kept: what to keep,
     *              as a unique_ptr.
     * @param use   Called with what is kept. It may be destroyed as soon as
     *              this returns.
     */
    template <typename Make, typename Use>
    void with_export(Make &&make, Use &&use)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (export_ == nullptr) {
            export_ = make(*this);
        }
        use(*export_);
    }

    /** Have the other cards let go of it, and others be told, before it is
     *  unmapped.
     *  @return Whether others may have it, who let go of it a little later. */
    [[nodiscard]] bool forget_peers();

private:
    std::mutex lock_; /* makes peers and the export */
    std::unique_ptr<backing_export> export_;
    import_windows peers_; /* of the other cards; goes before any card does */
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
