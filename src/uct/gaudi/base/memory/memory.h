/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device memory of this process, and what a uct_mem_h points to.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "util/interval_tree.h"

#include <atomic>
#include <cstdint>

namespace gaudi::base {

struct device_memory;
class host_region;

/** What a uct_mem_h of the memory domains points to: part of what it is a
 *  handle of, which outlives it. */
struct memory_handle {
    enum class kind : uint8_t { allocated, device, host };

    explicit memory_handle(host_region &of) : what(kind::host), host(&of) {}
    memory_handle(kind of_kind, device_memory &of) : what(of_kind), device(&of)
    {}
    ~memory_handle() { invalidate(); }
    memory_handle(const memory_handle &)            = delete;
    memory_handle &operator=(const memory_handle &) = delete;

    /** Whether it looks like a handle, and one that has not been released. */
    [[nodiscard]] bool is_valid() const { return tag == valid_tag; }
    void invalidate() { *const_cast<volatile uint64_t *>(&tag) = 0; }

    static constexpr uint64_t valid_tag = 0x6d656d6861756467;

    uint64_t tag = valid_tag;
    kind what;
    union {
        device_memory *device;
        host_region *host;
    };
};

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

/** Device memory that was allocated here, that the application mapped, or an
 *  imported dma-buf. The range is of device addresses. The last reference
 *  destroys it, and the destructor gives the addresses back: of its owner, of
 *  each registration, and of each operation, so that no card copies to or from
 *  addresses that are somebody else's by then. */
struct device_memory : util::interval_node {
    virtual ~device_memory() = default;

    void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
    void put()
    {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }

    card *owner = nullptr;             /* imported: the importer */
    held_cards cards;                  /* none for the application's */
    device_backing *backing = nullptr; /* nullptr: cannot be exported */
    bool imported           = false;   /* a dma-buf, or part of one */
    bool of_application     = false;   /* mapped by it, where it liked */
    bool exact = true; /* else all addresses of its card, on which the
                          application has memory that was mapped unseen */
    std::atomic<bool> exported{false};      /* a dma-buf was made of it */
    std::atomic<unsigned> registrations{0}; /* by the handle: */
    memory_handle registration{memory_handle::kind::device, *this};
    memory_handle allocation{memory_handle::kind::allocated, *this};

private:
    std::atomic<unsigned> references_{1};
};

} // namespace gaudi::base
