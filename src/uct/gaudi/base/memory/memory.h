/**
 * What the memory map knows: device memory, and host memory that cards can
 * reach.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/card_mappings.h"
#include "uct/gaudi/base/memory/device_backing.h"
#include "util/interval_tree.h"

#include <atomic>
#include <mutex>

namespace gaudi::base {

enum class memory_kind { host, device };

/** Device memory that mem_alloc gave out, that the application mapped itself,
 * or a dma-buf that was imported. The range is of device addresses. Whoever has
 * it in the memory map derives from it; the destructor gives it back. */
struct device_memory : util::interval_node {
    virtual ~device_memory() = default;

    card *owner             = nullptr;      /* imported: the importer */
    device_backing *backing = nullptr;      /* nullptr: cannot be exported */
    bool imported           = false;        /* a dma-buf, or part of one */
    bool of_application     = false;        /* mapped by it, where it liked */
    std::atomic<unsigned> registrations{0}; /* mem_reg of it, not yet undone */
    std::atomic<bool> exported{false};      /* a dma-buf was made of it */
    bool gone = false; /* only registrations keep it; the memory map's, under
                          its lock */
};

/**
 * Registered host memory: pinned and mapped once for each card that uses it.
 *
 * Counted: by its registration and by every transfer that uses it. The last one
 * to let go unmaps it, so a transfer that found it by its pointer stays valid
 * when another thread deregisters it meanwhile.
 */
class host_memory : public util::interval_node {
public:
    host_memory(void *address, size_t length);

    /**
     * The device address of the first byte on a card; mapped on first use
     * there.
     *
     * @return 0 or -errno.
     */
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

    ~host_memory();

    /* @return Whether nobody else has it. */
    [[nodiscard]] bool drop()
    {
        return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    const unsigned generation_; /* process that may call the driver */
    std::atomic<unsigned> references_{1};
    std::atomic<bool> refused_{false};
    std::mutex lock_; /* makes mappings; leaf, held across the driver call */
    card_mappings mappings_;
    host_memory *next_retired_ = nullptr;
};

/**
 * Registrations that have ended where the driver must not be called; the next
 * one who may does.
 */
class retired_memory {
public:
    /** Let go of memory; without locks or driver calls. */
    void add(host_memory &memory);

    [[nodiscard]] bool empty() const
    {
        return first_.load(std::memory_order_relaxed) == nullptr;
    }

    /** Have the driver unmap all there is. Called without locks. */
    void unmap();

private:
    std::atomic<host_memory *> first_{nullptr};
};

} // namespace gaudi::base
