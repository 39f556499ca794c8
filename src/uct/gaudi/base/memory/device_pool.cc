/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/device_pool.h"

#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace gaudi::base {

namespace {

/* What allocations are multiples of, bytes. */
constexpr uint64_t granule = 4096;

/* A part of a pool's block. */
struct allocated_memory final : device_memory {
    ~allocated_memory() override
    {
        if (block != nullptr) {
            (void)guarded([this] {
                card_memory::of(*owner).pool.release(*block, start, end - start,
                                                     exported);
                return UCS_OK;
            });
        }
    }

    device_block *block = nullptr;
};

/* Where addresses for the allocations of a card begin. */
uint64_t window_start(const card &owner)
{
    const shim::capabilities &known = owner.device().capabilities();
    return known.memory_start + owner.info().index * known.window_bytes;
}

} // namespace

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

/* A device address to ask for, so that memory of different cards of a process
 * does not share addresses. Never the same one in a row, so that a freed
 * address comes back late. */
uint64_t device_pool::next_hint(uint64_t size)
{
    const shim::capabilities &known = owner_.device().capabilities();
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

/* A place for a block among those that are there, with room behind it: with
 * one that is taken, or that ends where another begins, the driver would choose
 * by itself, maybe what another card has. */
uint64_t device_pool::find_place(uint64_t size)
{
    uint64_t place = 0;
    for (uint64_t tried = 0;
         tried < owner_.device().capabilities().window_bytes; tried += size) {
        place            = next_hint(size);
        const auto after = blocks_.upper_bound(place + size);
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
    int ret = owner_.device().allocate(size, find_place(size), memory);
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
    return block.memory.close() == 0;
}

void device_pool::give_back_retired()
{
    std::erase_if(blocks_, [&](const auto &entry) {
        return entry.second->retired && give_back(*entry.second);
    });
}

int device_pool::allocate(uint64_t length, device_block *&block_p,
                          uint64_t &start_p)
{
    const uint64_t page =
        std::max(owner_.device().capabilities().page_bytes, granule);
    if (length > UINT64_MAX - page) {
        return -ENOMEM;
    }
    if (owner_.is_lost()) {
        return -ENODEV;
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

    if (--block.parts == 0) {
        free_.remove(block.va);
        block.retired = true;
    } else if (!exported) {
        free_.release(start, size);
    }
    give_back_retired();
}

size_t device_pool::blocks() const
{
    std::lock_guard<std::mutex> guard(lock_);
    return blocks_.size();
}

card &card_for_hint(const held_cards &cards, const void *hint)
{
    if (const auto known = memory_map::instance().find_device(hint, 0)) {
        return *known->owner;
    }
    const auto address = reinterpret_cast<uintptr_t>(hint);
    card *chosen       = cards.find_open([&](const card &candidate) {
        const uint64_t start = window_start(candidate);
        return (address >= start) &&
               (address - start <
                candidate.device().capabilities().window_bytes);
    });
    chosen             = (chosen != nullptr) ? chosen : cards.first();
    return (chosen != nullptr) ? *chosen : *cards.all().front();
}

ucs_status_t allocate(card &owner, size_t length, bool quiet,
                      device_memory *&memory_p)
{
    auto memory   = std::make_unique<allocated_memory>();
    memory->owner = &owner;
    memory->cards = owner.hold();

    int ret = card_memory::of(owner).pool.allocate(length, memory->block,
                                                   memory->start);
    if (ret != 0) {
        ucs_log(failure_level(quiet),
                "%s: cannot allocate %zu bytes of device memory: %s",
                owner.name().c_str(), length, std::strerror(-ret));
        return to_status(ret);
    }
    memory->end     = memory->start + length;
    memory->backing = memory->block;
    if (!memory_map::instance().add(*memory)) {
        /* A driver need not follow hints. */
        ucs_log(failure_level(quiet),
                "%s: the driver gave %zu bytes at %#lx, which are addresses of "
                "another card's memory, too",
                owner.name().c_str(), length, memory->start);
        return UCS_ERR_NO_MEMORY;
    }
    memory_p = memory.release();
    announce_allocation(reinterpret_cast<void *>(memory_p->start), length);
    return UCS_OK;
}

} // namespace gaudi::base
