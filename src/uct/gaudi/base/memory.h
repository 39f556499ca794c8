/**
 * What the device table knows of memory: allocations of a card, and host memory
 * that cards can reach.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/card.h"
#include "uct/gaudi/base/device_pool.h"
#include "uct/gaudi/base/interval_tree.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace gaudi::base {

/** Device memory that mem_alloc gave out, or a dma-buf that was imported. The
 *  range is of device addresses. */
struct device_memory : interval_node {
    card *owner             = nullptr;      /* imported: the importer */
    device_block *block     = nullptr;      /* of our allocations */
    device_backing *backing = nullptr;      /* nullptr: cannot be exported */
    shim::mapping import;                   /* imported: of the whole dma-buf */
    std::atomic<unsigned> registrations{0}; /* mem_reg of it, not yet undone */
    std::atomic<bool> exported{false};      /* a dma-buf was made of it */

    [[nodiscard]] bool is_imported() const { return import.va() != 0; }
};

/**
 * Registered host memory: pinned and mapped once for each card that uses it.
 *
 * Counted: by its registration and by every transfer that uses it. The last one
 * to let go unmaps it, so a transfer that found it by its pointer stays valid
 * when another thread deregisters it meanwhile.
 */
class host_memory : public interval_node {
public:
    host_memory(void *address, size_t length, size_t cards);

    /**
     * The device address of the first byte on a card; mapped on first use
     * there.
     *
     * @return 0 or -errno.
     */
    [[nodiscard]] int va_on(const card &user, uint64_t &va_p);

    void get() { references_.fetch_add(1, std::memory_order_relaxed); }
    void put();

private:
    ~host_memory() = default;

    struct card_mapping {
        std::atomic<uint64_t> va{0};
        std::atomic<int> refused{0}; /* -errno of the driver, not asked again */
        shim::mapping mapping;
    };

    std::atomic<unsigned> references_{1};
    std::mutex lock_; /* makes mappings; leaf, held across the driver call */
    std::vector<card_mapping> mappings_;
};

} // namespace gaudi::base
