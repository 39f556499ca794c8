/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device memory that we give out, in parts of any size. It is given back by
 * memory_map::free.
 *
 * The driver gives out whole DRAM pages, tens of megabytes on Gaudi2. A pool
 * takes blocks of them and hands out parts, on host page boundaries: a dma-buf
 * is made of whole host pages, so one of an allocation shows no other. A block
 * goes back to the driver as soon as all of it is free.
 *
 * Threads: any. One mutex for each pool, held across driver calls; nothing that
 * UCM calls takes it.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "util/range_allocator.h"

#include <map>
#include <memory>
#include <mutex>

namespace gaudi::base {

/** DRAM pages, mapped as one range of device addresses. */
struct device_block : device_backing {
    using device_backing::device_backing;

    shim::allocation memory;
    unsigned parts = 0;     /**< allocations in it */
    bool retired   = false; /**< there were some, and there will be none; not
                                 taken back yet */
};

/** Of one card. */
class device_pool {
public:
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
    block_map blocks_; /* by va */
};

/** What there is for a card as long as it is open. */
struct card_memory : card_part {
    explicit card_memory(card &of) : pool(of) {}

    static card_memory &of(const card &owner)
    {
        return static_cast<card_memory &>(owner.part());
    }

    device_pool pool;
};

/**
 * The card on which to allocate.
 *
 * @param cards  Of which there are some.
 * @param hint  An address in or near memory of the wished card; NULL, and an
 *              address that is no card's, leave it to us, who take the first
 *              card.
 */
[[nodiscard]] card &card_for_hint(const held_cards &cards, const void *hint);

/**
 * Allocate device memory and announce it.
 *
 * The card gets it back when it has been freed and its last registration has
 * ended, and the last dma-buf of it is closed.
 *
 * @param length    bytes.
 * @param quiet     Log a failure as a diagnostic, not as an error.
 * @param memory_p  Filled on success.
 * @return UCS_ERR_NO_MEMORY when the card has not that much left.
 */
[[nodiscard]] ucs_status_t allocate(card &owner, size_t length, bool quiet,
                                    device_memory *&memory_p);

} // namespace gaudi::base
