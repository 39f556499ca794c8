/**
 * Device memory of one card, in parts of any size.
 *
 * The driver gives out whole DRAM pages, tens of megabytes on Gaudi2. A pool
 * takes blocks of them and hands out parts, on host page boundaries: a dma-buf
 * is made of whole host pages, so one of an allocation shows no other. A block
 * goes back to the driver as soon as all of it is free.
 *
 * Threads: any. One mutex, held across driver calls; nothing that UCM calls
 * takes it.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/memory/device_backing.h"
#include "util/range_allocator.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi::base {

/** DRAM pages, mapped as one range of device addresses. */
struct device_block : device_backing {
    using device_backing::device_backing;

    shim::allocation memory;
    unsigned parts = 0; /**< allocations in it */
};

class device_pool {
public:
    /** The pools' part in what happens to the cards. */
    static card_events &events();

    /** The pool of an open card. */
    static device_pool &of(card &owner);

    explicit device_pool(card &owner) : owner_(owner) {}

    /** Gives all blocks back, or leaves them to the closing of the card when
     *  dma-bufs keep the driver from it. */
    ~device_pool();

    device_pool(const device_pool &)            = delete;
    device_pool &operator=(const device_pool &) = delete;

    /**
     * Allocate device memory.
     *
     * @param length    Bytes, not 0.
     * @param block_p   Where the memory is, filled on success.
     * @param start_p   Device address of the first byte, filled on success.
     * @return 0 or -errno: -ENOMEM when the card has not that much left.
     */
    [[nodiscard]] int allocate(uint64_t length, device_block *&block_p,
                               uint64_t &start_p);

    /**
     * Undo an allocation.
     *
     * Never fails: a block that the driver does not take back, since a dma-buf
     * of it is alive, is tried again with later allocations and releases.
     *
     * @param exported  A dma-buf was made of it. Its holder shall not see what
     *                  others put there later, so it is not allocated again
     *                  before its block goes back.
     */
    void release(device_block &block, uint64_t start, uint64_t length,
                 bool exported);

    /** Whether memory of a card is asked for around this address. */
    [[nodiscard]] static bool window_contains(const card &owner,
                                              uint64_t address);

    /** Blocks that the driver has given. */
    [[nodiscard]] size_t blocks() const;

private:
    using block_map = std::map<uint64_t, std::unique_ptr<device_block>>;

    uint64_t next_hint(uint64_t size);
    uint64_t find_place(uint64_t size);
    int add_block(uint64_t size);
    bool give_back(device_block &block);
    void give_back_retired();

    card &owner_;
    mutable std::mutex lock_;
    uint64_t hint_offset_ = 0;
    util::range_allocator free_;
    block_map blocks_;                    /* by va */
    std::vector<device_block *> retired_; /* empty, and not taken back yet */
};

} // namespace gaudi::base
