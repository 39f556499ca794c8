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
#include <mutex>
#include <vector>

namespace gaudi::base {

namespace {

using application::allocation;
using application::allocation_map;
using application::key;

using mapping_map =
    std::map<key, std::unique_ptr<application_memory>>; /* by va */

struct application_registry {
    std::mutex lock;
    allocation_map allocations;
    mapping_map mappings;
};

std::atomic<bool> all_is_reported{false};

application_registry &registry()
{
    return util::of_this_process<application_registry>();
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
    ~application_part() override;

    static application_part &of(const card &owner)
    {
        return static_cast<application_part &>(owner.part());
    }

    /* No address leads there any more. @return Whether one did. */
    bool forget_unseen()
    {
        if (has_unseen) {
            memory_map::instance().remove(unseen);
        }
        return std::exchange(has_unseen, false);
    }

    device_memory unseen;
    bool has_unseen = false; /* it is in the memory map */
};

uint64_t page_size(const card &of)
{
    return std::max<uint64_t>(of.device().capabilities().page_bytes, 1);
}

void *to_pointer(uint64_t address)
{
    return reinterpret_cast<void *>(address);
}

/* Note whose memory it is. Under the lock. */
void claim(application_memory &memory, card &owner)
{
    memory.whole = std::make_unique<device_backing>(
        owner, memory.start,
        util::round_up(memory.end - memory.start, page_size(owner)));
    memory_map::instance().set_owner(memory, &owner, memory.whole.get());
}

void enter(std::unique_ptr<application_memory> memory)
{
    const held_cards cards = card_table::instance().cards();
    card *owner            = cards.find_open(
        [&](const card &each) { return each.node() == memory->node; });
    const std::lock_guard<std::mutex> guard(registry().lock);
    auto &entry = registry().mappings[{memory->node, memory->start}];
    entry       = std::move(memory);
    if ((entry->whole == nullptr) && (owner != nullptr)) {
        claim(*entry, *owner);
    }
    (void)memory_map::instance().add(*entry);
}

/* And announce it. */
void add(std::unique_ptr<application_memory> memory)
{
    const uint64_t start = memory->start;
    const size_t length  = memory->end - start;
    enter(std::move(memory));
    announce_allocation(to_pointer(start), length);
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
    for (auto entry = registry().allocations.lower_bound({adopted.node(), 0});
         (entry != registry().allocations.end()) &&
         (entry->first.first == adopted.node());
         ++entry) {
        bytes += util::round_up(entry->second.size, page_size(adopted));
    }
    return *allocated <= bytes;
}

/* A framework's memory: one block, which it gives out in parts. Where its
 * mapping was seen, that is there already. */
void add_block(card &adopted, const shim::memory_block &block)
{
    const shim::node_identity &node = adopted.node();
    const uint64_t end              = block.start + block.size;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for (const auto &entry : registry().mappings) {
            const application_memory &known = *entry.second;
            if ((known.node == node) && (known.start <= block.start) &&
                (known.end >= end)) {
                return;
            }
        }
    }
    const uint64_t page    = shim::dmabuf_page();
    const uint64_t first   = block.start / page * page;
    auto memory            = std::make_unique<application_memory>();
    memory->node           = node;
    memory->fd             = adopted.device().fd();
    memory->of_application = true;
    memory->start          = block.start;
    memory->end            = end;
    memory->whole          = std::make_unique<device_backing>(
        adopted, first, util::round_up(end, page) - first);
    memory->owner   = &adopted;
    memory->backing = memory->whole.get();
    ucs_debug("%s: %lu bytes of device memory at %#lx are a framework's",
              adopted.name().c_str(), block.size, block.start);
    add(std::move(memory));
}

/* Take out what there was through a descriptor of an open card; -1: any. The
 * memory map still has it, so nothing here may fail: nothing is allocated. */
template <typename Map, typename Descriptor>
Map take(Map &from, const shim::node_identity &node, int fd, Descriptor &&fd_of)
{
    Map taken;
    for (auto next = from.begin(); next != from.end();) {
        const auto entry = next++;
        if ((entry->first.first == node) &&
            ((fd < 0) || (fd_of(entry->second) == fd))) {
            taken.insert(from.extract(entry));
        }
    }
    return taken;
}

application_part::~application_part()
{
    (void)forget_unseen();
    const card &closing = *unseen.owner;
    for (key next{closing.node(), 0};;) {
        const std::lock_guard<std::mutex> guard(registry().lock);
        const auto found = registry().mappings.lower_bound(next);
        if ((found == registry().mappings.end()) ||
            (found->first.first != closing.node())) {
            return;
        }
        application_memory &memory = *found->second;
        if (memory.owner == &closing) {
            memory_map::instance().set_owner(memory, nullptr, nullptr);
            memory.whole.reset();
        }
        next.second = memory.start + 1;
    }
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

allocation_map::node_type freeing(int fd, uint64_t handle)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return {};
    }
    const std::lock_guard<std::mutex> guard(registry().lock);
    return registry().allocations.extract({node, handle});
}

void not_freed(allocation_map::node_type kept)
{
    const std::lock_guard<std::mutex> guard(registry().lock);
    registry().allocations.insert(std::move(kept));
}

void mapped(int fd, uint64_t handle, uint64_t va)
{
    auto memory = std::make_unique<application_memory>();
    if (!shim::identify(fd, memory->node)) {
        return;
    }
    /* What was there has been unmapped unseen. */
    if (auto former = unmapping(fd, va)) {
        unmapped(std::move(former), true);
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
    memory->fd             = fd;
    memory->of_application = true;
    memory->start          = va;
    memory->end            = va + size;
    add(std::move(memory));
}

std::unique_ptr<application_memory> unmapping(int fd, uint64_t va)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return nullptr;
    }
    std::unique_ptr<application_memory> memory;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        const auto found = registry().mappings.find({node, va});
        if (found == registry().mappings.end()) {
            return nullptr;
        }
        memory = std::move(found->second);
        registry().mappings.erase(found);
    }
    memory_map &map = memory_map::instance();
    map.remove(*memory);
    map.announce_gone(memory->start, memory->end);
    return memory;
}

void unmapped(std::unique_ptr<application_memory> memory, bool done)
{
    if (done) {
        memory_map::instance().end(*memory.release());
    } else {
        add(std::move(memory));
    }
}

} // namespace application

namespace card_events {

void card_added(card &added)
{
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for (auto entry = registry().mappings.lower_bound({added.node(), 0});
             (entry != registry().mappings.end()) &&
             (entry->first.first == added.node());
             ++entry) {
            claim(*entry->second, added);
        }
    }
    const auto block = added.device().application_block();
    if (added.is_adopted() && block.has_value()) {
        add_block(added, *block);
    } else if (added.is_adopted() && !has_seen_all(added)) {
        application_part &part   = application_part::of(added);
        const device_memory &all = part.unseen;
        ucs_debug("%s: the application has device memory that was not seen: "
                  "all addresses from %#lx to %#lx are taken for it",
                  added.name().c_str(), all.start, all.end);
        part.has_unseen = memory_map::instance().add(part.unseen);
        announce_allocation(to_pointer(all.start), all.end - all.start);
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
 * can be given out again then. */
void node_closed(const shim::node_identity &node, int fd, const card *lent)
{
    mapping_map mappings;
    allocation_map allocations;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        mappings    = take(registry().mappings, node, fd,
                           [](const auto &memory) { return memory->fd; });
        allocations = take(registry().allocations, node, fd,
                           [](const allocation &known) { return known.fd; });
    }
    memory_map &map = memory_map::instance();
    for (const auto &[at, memory] : mappings) {
        map.remove(*memory);
    }
    for (auto &[at, memory] : mappings) {
        map.announce_gone(memory->start, memory->end);
        map.end(*memory.release());
    }
    if (lent == nullptr) {
        return;
    }
    for (const auto &[at, _] : mappings) {
        (void)lent->device().unmap(at.second);
    }
    for (const auto &[at, _] : allocations) {
        (void)lent->device().free_memory(at.second);
    }
}

void look_for_closed_nodes()
{
    std::vector<shim::open_node> nodes;
    {
        const std::lock_guard<std::mutex> guard(registry().lock);
        for (const auto &entry : registry().mappings) {
            nodes.push_back({entry.second->fd, entry.second->node});
        }
        for (const auto &entry : registry().allocations) {
            nodes.push_back({entry.second.fd, entry.first.first});
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
