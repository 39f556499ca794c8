#include "uct/gaudi/base/memory/device_pool.h"

#include "util/addresses.h"
#include "util/per_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace gaudi::base {

namespace {

/* What allocations are multiples of, bytes. */
constexpr uint64_t granule = 4096;

/* By slot. */
struct card_pools {
    std::mutex lock; /* which there are */
    std::array<std::unique_ptr<device_pool>, max_cards> pools;
};

card_pools &pools_of_process()
{
    return util::of_this_process<card_pools>();
}

class pool_events final : public card_events {
    void cards_closing() override
    {
        card_pools &all = pools_of_process();
        for (auto &pool : all.pools) {
            pool.reset();
        }
    }
};

/* Where addresses for the allocations of a card begin. */
uint64_t window_start(const card &owner)
{
    const shim::capabilities &known = owner.driver().capabilities();
    return known.memory_start + owner.info().index * known.window_bytes;
}

} // namespace

card_events &device_pool::events()
{
    static constinit pool_events room;
    return room;
}

device_pool &device_pool::of(card &owner)
{
    card_pools &all = pools_of_process();
    std::lock_guard<std::mutex> guard(all.lock);
    auto &pool = all.pools[owner.slot()];
    if (pool == nullptr) {
        pool = std::make_unique<device_pool>(owner);
    }
    return *pool;
}

device_pool::~device_pool()
{
    for (auto &[va, block] : blocks_) {
        if (!give_back(*block)) {
            ucs_debug(
                "%s: %lu bytes of device memory at %#lx stay mapped until "
                "the last dma-buf of them is closed",
                owner_.name().c_str(), block->size, va);
            block->memory.release();
        }
    }
}

bool device_pool::window_contains(const card &owner, uint64_t address)
{
    const uint64_t start = window_start(owner);
    return (address >= start) &&
           (address - start < owner.driver().capabilities().window_bytes);
}

/* A device address to ask for, so that memory of different cards of a process
 * does not share addresses. Never the same one in a row, so that a freed
 * address comes back late. */
uint64_t device_pool::next_hint(uint64_t size)
{
    const shim::capabilities &known = owner_.driver().capabilities();
    if (known.page_bytes == 0) {
        return 0;
    }
    const uint64_t bytes = util::round_up(size, known.page_bytes);
    if (hint_offset_ + bytes > known.window_bytes) {
        hint_offset_ = 0;
    }
    const uint64_t wished = window_start(owner_) + hint_offset_;
    hint_offset_ += bytes;
    return known.next_page(wished);
}

/* A place for a block among those that are there: with one that is taken the
 * driver would choose by itself, maybe what another card has. */
uint64_t device_pool::find_place(uint64_t size)
{
    uint64_t place = 0;
    for (uint64_t tried = 0;
         tried < owner_.driver().capabilities().window_bytes; tried += size) {
        place            = next_hint(size);
        const auto after = blocks_.lower_bound(place + size);
        if ((after == blocks_.begin()) ||
            (std::prev(after)->first + std::prev(after)->second->size <=
             place)) {
            break;
        }
    }
    return place;
}

/* Get memory from the driver, and let it be allocated from. */
int device_pool::add_block(uint64_t size)
{
    shim::allocation memory;
    int ret = owner_.driver().allocate(size, find_place(size), memory);
    if (ret != 0) {
        return ret;
    }
    auto block = std::make_unique<device_block>(owner_, memory.address(), size);
    block->memory     = std::move(memory);
    const uint64_t va = block->va;
    const auto added  = blocks_.emplace(va, std::move(block)).first;
    try {
        free_.add(va, size);
    } catch (const std::bad_alloc &) {
        blocks_.erase(added);
        throw;
    }
    return 0;
}

/* False when the driver refuses, since somebody has a dma-buf of it. */
bool device_pool::give_back(device_block &block)
{
    (void)block.forget_peers();
    return block.memory.close() == 0;
}

void device_pool::give_back_retired()
{
    std::erase_if(retired_, [&](device_block *block) {
        if (!give_back(*block)) {
            return false;
        }
        blocks_.erase(block->va);
        return true;
    });
}

int device_pool::allocate(uint64_t length, device_block *&block_p,
                          uint64_t &start_p)
{
    const uint64_t page =
        std::max(owner_.driver().capabilities().page_bytes, granule);
    if (length > UINT64_MAX - page) {
        return -ENOMEM;
    }
    const uint64_t size = util::round_up(length, granule);
    std::lock_guard<std::mutex> guard(lock_);

    uint64_t start = free_.allocate(size);
    if (start == 0) {
        give_back_retired();
        int ret = add_block(util::round_up(size, page));
        if (ret != 0) {
            return ret;
        }
        start = free_.allocate(size);
    }
    device_block &block = *std::prev(blocks_.upper_bound(start))->second;
    ++block.parts;
    block_p = &block;
    start_p = start;
    return 0;
}

void device_pool::release(device_block &block, uint64_t start, uint64_t length,
                          bool exported)
{
    const uint64_t size = util::round_up(length, granule);
    std::lock_guard<std::mutex> guard(lock_);

    if (!exported) {
        free_.release(start, size);
    }
    if (--block.parts == 0) {
        free_.remove(block.va);
        retired_.push_back(&block);
    }
    give_back_retired();
}

size_t device_pool::blocks() const
{
    std::lock_guard<std::mutex> guard(lock_);
    return blocks_.size();
}

} // namespace gaudi::base
