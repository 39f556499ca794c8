#include "uct/gaudi/base/memory/application/application_memory.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "util/addresses.h"
#include "util/per_process.h"

#include <algorithm>
#include <atomic>

namespace gaudi::base {

namespace {

std::atomic<bool> all_is_reported{false};

uint64_t page_size(const card &of)
{
    return std::max<uint64_t>(of.device().capabilities().page_bytes, 1);
}

void *to_pointer(uint64_t address)
{
    return reinterpret_cast<void *>(address);
}

} // namespace

application_registry &application_registry::instance()
{
    return util::of_this_process<application_registry>();
}

void application_registry::expect_all(bool reported)
{
    all_is_reported.store(reported);
}

void application_registry::allocated(int fd, uint64_t handle, uint64_t size)
{
    shim::node_identity node;
    if (shim::identify(fd, node)) {
        const std::lock_guard<std::mutex> guard(lock_);
        allocations_[{node, handle}] = {fd, size};
    }
}

application_registry::allocation_map::node_type
application_registry::freeing(int fd, uint64_t handle)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return {};
    }
    const std::lock_guard<std::mutex> guard(lock_);
    return allocations_.extract({node, handle});
}

void application_registry::not_freed(allocation_map::node_type kept)
{
    const std::lock_guard<std::mutex> guard(lock_);
    allocations_.insert(std::move(kept));
}

void application_registry::mapped(int fd, uint64_t handle, uint64_t va)
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
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = allocations_.find({memory->node, handle});
        size = (found != allocations_.end()) ? found->second.size : 0;
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

void application_registry::enter(std::unique_ptr<application_memory> memory)
{
    const std::lock_guard<std::mutex> guard(lock_);
    auto &entry = mappings_[{memory->node, memory->start}];
    entry       = std::move(memory);
    if (entry->whole == nullptr) {
        claim(*entry);
    }
    (void)memory_map::instance().add(*entry);
}

/* And announce it. */
void application_registry::add(std::unique_ptr<application_memory> memory)
{
    const uint64_t start = memory->start;
    const size_t length  = memory->end - start;
    enter(std::move(memory));
    announce_allocation(to_pointer(start), length);
}

/* Note whose memory it is, if that card is used. Under lock_. */
void application_registry::claim(application_memory &memory)
{
    card *owner = card_table::instance().find_card(memory.node);
    if (owner != nullptr) {
        memory.whole = std::make_unique<device_backing>(
            *owner, memory.start,
            util::round_up(memory.end - memory.start, page_size(*owner)));
        memory_map::instance().set_owner(memory, owner, memory.whole.get());
    }
}

std::unique_ptr<application_memory> application_registry::unmapping(int fd,
                                                                    uint64_t va)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return nullptr;
    }
    std::unique_ptr<application_memory> memory;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = mappings_.find({node, va});
        if (found == mappings_.end()) {
            return nullptr;
        }
        memory = std::move(found->second);
        mappings_.erase(found);
    }
    memory_map &map = memory_map::instance();
    map.remove(*memory);
    if (memory->whole != nullptr) {
        memory->was_shared = memory->whole->forget_peers();
    }
    map.announce_gone(memory->start, memory->end);
    return memory;
}

void application_registry::unmapped(std::unique_ptr<application_memory> memory,
                                    bool done)
{
    if (done) {
        memory_map::instance().end(*memory.release());
    } else {
        add(std::move(memory));
    }
}

/* Whether the driver has no more memory for the application than we know of. */
bool application_registry::has_seen_all(const card &adopted,
                                        const shim::node_identity &node)
{
    const auto allocated = adopted.device().allocated_bytes();
    if (!all_is_reported || !allocated.has_value()) {
        return false;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    uint64_t bytes = 0;
    for (auto entry = allocations_.lower_bound({node, 0});
         (entry != allocations_.end()) && (entry->first.first == node);
         ++entry) {
        bytes += util::round_up(entry->second.size, page_size(adopted));
    }
    return *allocated <= bytes;
}

/* A framework's memory: one block, which it gives out in parts. Where its
 * mapping was seen, that is there already. */
void application_registry::add_block(card &adopted,
                                     const shim::node_identity &node,
                                     const shim::memory_block &block,
                                     deferred &later)
{
    const uint64_t end = block.start + block.size;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (const auto &entry : mappings_) {
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
    enter(std::move(memory));
    later.emplace_back(
        [block] { announce_allocation(to_pointer(block.start), block.size); });
}

void application_registry::card_added(card &added,
                                      const shim::node_identity &node,
                                      bool adopted, deferred &later)
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (const auto &entry : mappings_) {
            if (entry.second->node == node) {
                claim(*entry.second);
            }
        }
    }
    const auto block = added.device().application_block();
    if (adopted && block.has_value()) {
        add_block(added, node, *block, later);
    } else if (adopted && !has_seen_all(added, node)) {
        const shim::capabilities &known = added.device().capabilities();
        ucs_debug("%s: the application has device memory that was not seen: "
                  "all addresses from %#lx to %#lx are taken for it",
                  added.name().c_str(), known.memory_start, known.memory_end);
        memory_map::instance().add_unseen(added);
        later.emplace_back(
            [start = known.memory_start, end = known.memory_end] {
                announce_allocation(to_pointer(start), end - start);
            });
    }
}

/* Take out what there was through a descriptor of an open card; -1: any. The
 * memory map still has it, so nothing here may fail: nothing is allocated. */
application_registry::remains
application_registry::take_all(const shim::node_identity &node, int fd)
{
    const auto is_it = [&](const shim::node_identity &of, int through) {
        return (of == node) && ((fd < 0) || (through == fd));
    };
    remains taken;
    const std::lock_guard<std::mutex> guard(lock_);
    for (auto next = mappings_.begin(); next != mappings_.end();) {
        const auto entry = next++;
        if (is_it(entry->second->node, entry->second->fd)) {
            taken.mappings.insert(mappings_.extract(entry));
        }
    }
    for (auto next = allocations_.begin(); next != allocations_.end();) {
        const auto entry = next++;
        if (is_it(entry->first.first, entry->second.fd)) {
            taken.allocations.insert(allocations_.extract(entry));
        }
    }
    return taken;
}

/* Let no address lead to what was taken out. */
void application_registry::drop(remains &dropped, deferred &later)
{
    memory_map &map = memory_map::instance();
    for (const auto &[at, memory] : dropped.mappings) {
        map.remove(*memory);
    }
    for (auto &[at, memory] : dropped.mappings) {
        if (memory->whole != nullptr) {
            (void)memory->whole->forget_peers();
        }
        later.emplace_back([start = memory->start, end = memory->end] {
            memory_map::instance().announce_gone(start, end);
        });
        map.end(*memory.release());
    }
}

void application_registry::card_lost(card &lost,
                                     const shim::node_identity &node,
                                     deferred &later)
{
    node_closed(node, -1, nullptr, later);
    if (memory_map::instance().remove_unseen(lost)) {
        const shim::capabilities &known = lost.device().capabilities();
        later.emplace_back(
            [start = known.memory_start, end = known.memory_end] {
                memory_map::instance().announce_gone(start, end);
            });
    }
}

void application_registry::node_closed(const shim::node_identity &node, int fd,
                                       card *lent, deferred &later)
{
    remains left = take_all(node, fd);
    drop(left, later);
    if (lent == nullptr) {
        return;
    }
    std::vector<uint64_t> addresses;
    for (const auto &entry : left.mappings) {
        addresses.push_back(entry.first.second);
    }
    std::vector<uint64_t> handles;
    for (const auto &entry : left.allocations) {
        handles.push_back(entry.first.second);
    }
    /* As the driver would have done. Not before it has been announced as gone:
     * the addresses can be given out again then. */
    later.emplace_back([&driven = lent->device(), addresses, handles] {
        for (const uint64_t address : addresses) {
            (void)driven.unmap(address);
        }
        for (const uint64_t handle : handles) {
            (void)driven.free_memory(handle);
        }
    });
}

void application_registry::look_for_closed_nodes(deferred &later)
{
    std::vector<shim::open_node> nodes;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (const auto &entry : mappings_) {
            nodes.push_back({entry.second->fd, entry.second->node});
        }
        for (const auto &entry : allocations_) {
            nodes.push_back({entry.second.fd, entry.first.first});
        }
    }
    for (const shim::open_node &used : nodes) {
        if (!shim::is_node(used.fd, used.node)) {
            node_closed(used.node, used.fd, nullptr, later);
        }
    }
}

/* Mappings stay known, for the next opening. */
void application_registry::cards_closing()
{
    std::vector<std::unique_ptr<device_backing>> backings;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (const auto &entry : mappings_) {
            application_memory &memory = *entry.second;
            if (memory.whole != nullptr) {
                backings.push_back(std::move(memory.whole));
                memory_map::instance().set_owner(memory, nullptr, nullptr);
            }
        }
    }
    backings.clear(); /* unmaps what other cards imported */
}

} // namespace gaudi::base
