/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/application/application_memory.h"

#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "util/addresses.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace gaudi::base {

namespace {

/* Of an open card: a handle, or a device address. */
using key = std::pair<shim::node_identity, uint64_t>;

struct allocation {
    int fd;
    uint64_t size;
};

struct application_registry {
    std::mutex lock;
    std::map<key, allocation> allocations;        /* by handle */
    std::map<key, application_memory *> mappings; /* by address; owned */
};

std::atomic<bool> all_is_reported{false};

application_registry &registry()
{
    return util::of_this_process<application_registry>();
}

/* Visit what a map has of an open card. */
template <typename Map, typename Visit>
void for_each_on(Map &map, const shim::node_identity &node, Visit &&visit)
{
    auto next = map.lower_bound({node, 0});
    while ((next != map.end()) && (next->first.first == node)) {
        visit(next++);
    }
}

/* What is kept for an open card. Mappings on it stay known, for the next
 * opening. */
struct application_part final : card_memory {
    explicit application_part(card &of) : card_memory(of)
    {
        unseen.owner          = &of;
        unseen.start          = of.device().capabilities().memory_start;
        unseen.end            = of.device().capabilities().memory_end;
        unseen.of_application = true;
        unseen.exact          = false;
    }

    ~application_part() override
    {
        (void)forget_unseen();
        const std::lock_guard<std::mutex> guard(registry().lock);
        for_each_on(registry().mappings, unseen.owner->node(), [&](auto each) {
            application_memory &memory = *each->second;
            if (memory.owner == unseen.owner) {
                memory_map::instance().set_owner(memory, nullptr, nullptr);
                memory.whole.reset();
            }
        });
    }

    static application_part &of(const card &owner)
    {
        return static_cast<application_part &>(owner.part());
    }

    /* No address leads there any more. @return Whether any did. */
    bool forget_unseen()
    {
        const bool had_unseen = has_unseen.exchange(false);
        if (had_unseen) {
            memory_map::instance().remove(unseen);
        }
        return had_unseen;
    }

    device_memory unseen;
    std::atomic<bool> has_unseen{false}; /* it is in the memory map */
};

uint64_t page_size(const card &of)
{
    return std::max<uint64_t>(of.device().capabilities().page_bytes, 1);
}

void announce(uint64_t start, uint64_t end)
{
    announce_allocation(reinterpret_cast<void *>(start), end - start);
}

/* Note whose memory it is. Under the lock. */
void claim(application_memory &memory, card &owner)
{
    memory.whole = std::make_unique<device_backing>(
        owner, memory.start,
        util::round_up(memory.end - memory.start, page_size(owner)));
    memory_map::instance().set_owner(memory, &owner, memory.whole.get());
}

/* Let addresses lead to memory. */
void enter(application_memory &memory)
{
    held_cards cards; /* go without the lock */
    const std::lock_guard<std::mutex> guard(registry().lock);
    /* Under it: a card that opens now claims what is listed by then. */
    cards       = card_table::instance().cards();
    card *owner = cards.find_open(
        [&](const card &each) { return each.node() == memory.node; });
    registry().mappings[{memory.node, memory.start}] = &memory;
    if ((memory.whole == nullptr) && (owner != nullptr)) {
        claim(memory, *owner);
    }
    memory.of_application = true;
    (void)memory_map::instance().add(memory);
}

/* Whether the driver has no more memory for the application than we know of. */
bool has_seen_all(const card &adopted)
{
    const auto allocated = adopted.device().allocated_bytes();
    if (!all_is_reported || !allocated.has_value()) {
        return false;
    }
    const std::lock_guard<std::mutex> guard(registry().lock);
    uint64_t bytes = 0;
    for_each_on(registry().allocations, adopted.node(), [&](auto each) {
        bytes += util::round_up(each->second.size, page_size(adopted));
    });
    return *allocated <= bytes;
}

/* A framework's memory: one block, which it gives out in parts. Where its
 * mapping was seen, that is there already. */
void add_block(card &adopted, const shim::memory_block &block)
{
    const uint64_t end = block.start + block.size;
    bool is_known      = false;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for_each_on(registry().mappings, adopted.node(), [&](auto each) {
            is_known |= (each->second->start <= block.start) &&
                        (each->second->end >= end);
        });
    }
    if (is_known) {
        return;
    }
    const uint64_t page  = shim::dmabuf_page();
    const uint64_t first = block.start / page * page;
    auto memory          = std::make_unique<application_memory>();
    memory->node         = adopted.node();
    memory->fd           = adopted.device().fd();
    memory->start        = block.start;
    memory->end          = end;
    memory->whole        = std::make_unique<device_backing>(
        adopted, first, util::round_up(end, page) - first);
    memory->owner   = &adopted;
    memory->backing = memory->whole.get();
    ucs_debug("%s: %lu bytes of device memory at %#lx are a framework's",
              adopted.name().c_str(), block.size, block.start);
    enter(*memory);
    (void)memory.release();
    announce(block.start, end);
}

} // namespace

namespace application {

void expect_all(bool reported)
{
    all_is_reported.store(reported);
}

void allocated(int fd, uint64_t handle, uint64_t size)
{
    shim::node_identity node;
    if (shim::identify(fd, node)) {
        const std::lock_guard<std::mutex> guard(registry().lock);
        registry().allocations[{node, handle}] = {fd, size};
    }
}

uint64_t freeing(int fd, uint64_t handle)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return 0;
    }
    const std::lock_guard<std::mutex> guard(registry().lock);
    const auto known = registry().allocations.extract({node, handle});
    return known.empty() ? 0 : known.mapped().size;
}

void mapped(int fd, uint64_t handle, uint64_t va)
{
    auto memory = std::make_unique<application_memory>();
    if (!shim::identify(fd, memory->node)) {
        return;
    }
    /* What was there has been unmapped unseen. */
    if (application_memory *former = unmapping(fd, va)) {
        unmapped(*former, true);
    }
    /* One that was allocated unseen is among what its card has unseen. */
    uint64_t size = 0;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        const auto found = registry().allocations.find({memory->node, handle});
        size = (found != registry().allocations.end()) ? found->second.size : 0;
    }
    ucs_debug("gaudi: the application mapped %lu bytes of file descriptor %d "
              "at %#lx",
              size, fd, va);
    if (size == 0) {
        return;
    }
    memory->fd    = fd;
    memory->start = va;
    memory->end   = va + size;
    enter(*memory);
    (void)memory.release();
    announce(va, va + size);
}

application_memory *unmapping(int fd, uint64_t va)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return nullptr;
    }
    application_memory *memory;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        const auto known = registry().mappings.extract({node, va});
        if (known.empty()) {
            return nullptr;
        }
        memory = known.mapped();
    }
    memory_map &map = memory_map::instance();
    map.remove(*memory);
    map.announce_gone(memory->start, memory->end);
    memory_map::end_uses(*memory); /* a card must not find it unmapped */
    return memory;
}

void unmapped(application_memory &memory, bool done)
{
    if (done) {
        memory_map::end(memory);
    } else {
        enter(memory);
        announce(memory.start, memory.end);
    }
}

} // namespace application

namespace card_events {

void card_added(card &added)
{
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for_each_on(registry().mappings, added.node(), [&](auto each) {
            if (each->second->owner != &added) {
                claim(*each->second, added);
            }
        });
    }
    if (!added.is_adopted()) {
        return;
    }
    if (const auto block = added.device().application_block()) {
        add_block(added, *block);
    } else if (!has_seen_all(added)) {
        application_part &part   = application_part::of(added);
        const device_memory &all = part.unseen;
        ucs_debug("%s: the application has device memory that was not seen: "
                  "all addresses from %#lx to %#lx are taken for it",
                  added.name().c_str(), all.start, all.end);
        part.has_unseen = memory_map::instance().add(part.unseen);
        announce(all.start, all.end);
    }
}

void card_lost(const card &lost)
{
    node_closed(lost.node(), -1, nullptr);
    application_part &part = application_part::of(lost);
    if (part.forget_unseen()) {
        memory_map::instance().announce_gone(part.unseen.start,
                                             part.unseen.end);
    }
}

/* No address leads to what was there any more. The driver is asked to do as it
 * would have done, but not before it has been announced as gone: the addresses
 * can be given out again then. What may run out of memory comes first. */
void node_closed(const shim::node_identity &node, int fd, const card *lent)
{
    auto &map = memory_map::instance();
    std::vector<application_memory *> gone;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    std::vector<uint64_t> handles;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        const auto was_through = [fd](int of) {
            return (fd < 0) || (of == fd);
        };
        for_each_on(registry().mappings, node, [&](auto each) {
            if (was_through(each->second->fd)) {
                gone.push_back(each->second);
                ranges.emplace_back(each->second->start, each->second->end);
            }
        });
        for_each_on(registry().allocations, node, [&](auto each) {
            if (was_through(each->second.fd)) {
                handles.push_back(each->first.second);
            }
        });
        for (const application_memory *each : gone) {
            registry().mappings.erase({node, each->start});
        }
        for (const uint64_t handle : handles) {
            registry().allocations.erase({node, handle});
        }
    }
    for (application_memory *each : gone) {
        map.remove(*each);
    }
    for (const auto &[start, end] : ranges) {
        map.announce_gone(start, end);
    }
    for (application_memory *each : gone) {
        memory_map::end(*each); /* waits for copies that others ask for */
    }
    if (lent == nullptr) {
        return;
    }
    for (const auto &[start, _] : ranges) {
        (void)lent->device().unmap(start);
    }
    for (const uint64_t handle : handles) {
        (void)lent->device().free_memory(handle);
    }
}

void look_for_closed_nodes()
{
    std::vector<shim::open_node> nodes;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for (const auto &[at, memory] : registry().mappings) {
            nodes.push_back({memory->fd, memory->node});
        }
        for (const auto &[at, allocated] : registry().allocations) {
            nodes.push_back({allocated.fd, at.first});
        }
    }
    for (const shim::open_node &used : nodes) {
        if (!shim::is_node(used.fd, used.node)) {
            node_closed(used.node, used.fd, nullptr);
        }
    }
}

std::unique_ptr<card_part> make_part(card &opened)
{
    return std::make_unique<application_part>(opened);
}

} // namespace card_events

} // namespace gaudi::base
