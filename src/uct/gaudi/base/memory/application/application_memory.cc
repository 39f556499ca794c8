#include "uct/gaudi/base/memory/application/application_memory.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "util/addresses.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>

namespace gaudi::base {

namespace {

using card_events::news;

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
    const held_cards cards = card_table::instance().cards();
    card *owner            = cards.find_open(
        [&](const card &each) { return each.node() == memory->node; });
    const std::lock_guard<std::mutex> guard(lock_);
    auto &entry = mappings_[{memory->node, memory->start}];
    entry       = std::move(memory);
    if ((entry->whole == nullptr) && (owner != nullptr)) {
        claim(*entry, *owner);
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

/* Note whose memory it is. Under lock_. */
void application_registry::claim(application_memory &memory, card &owner)
{
    memory.whole = std::make_unique<device_backing>(
        owner, memory.start,
        util::round_up(memory.end - memory.start, page_size(owner)));
    memory_map::instance().set_owner(memory, &owner, memory.whole.get());
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
bool application_registry::has_seen_all(const card &adopted)
{
    const auto allocated = adopted.device().allocated_bytes();
    if (!all_is_reported || !allocated.has_value()) {
        return false;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    uint64_t bytes = 0;
    for (auto entry = allocations_.lower_bound({adopted.node(), 0});
         (entry != allocations_.end()) &&
         (entry->first.first == adopted.node());
         ++entry) {
        bytes += util::round_up(entry->second.size, page_size(adopted));
    }
    return *allocated <= bytes;
}

/* A framework's memory: one block, which it gives out in parts. Where its
 * mapping was seen, that is there already. */
void application_registry::add_block(card &adopted,
                                     const shim::memory_block &block)
{
    const shim::node_identity &node = adopted.node();
    const uint64_t end              = block.start + block.size;
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
    note(news::kind::memory_came, block.start, end);
}

void application_registry::card_added(card &added)
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (auto entry = mappings_.lower_bound({added.node(), 0});
             (entry != mappings_.end()) && (entry->first.first == added.node());
             ++entry) {
            claim(*entry->second, added);
        }
    }
    const auto block = added.device().application_block();
    if (added.is_adopted() && block.has_value()) {
        add_block(added, *block);
    } else if (added.is_adopted() && !has_seen_all(added)) {
        unseen_memory &all = card_memory::of(added).unseen;
        ucs_debug("%s: the application has device memory that was not seen: "
                  "all addresses from %#lx to %#lx are taken for it",
                  added.name().c_str(), all.start, all.end);
        memory_map::instance().add_unseen(all);
        note(news::kind::memory_came, all.start, all.end);
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

/* For when no lock is held. */
void application_registry::note(news::kind what, uint64_t start, uint64_t end,
                                const card *lent)
{
    news_.push_back({what, start, end, lent,
                     (lent != nullptr) ? lent->hold() : held_cards()});
}

void application_registry::card_lost(const card &lost)
{
    node_closed(lost.node(), -1, nullptr);
    unseen_memory &all = card_memory::of(lost).unseen;
    if (memory_map::instance().remove_unseen(all)) {
        note(news::kind::memory_went, all.start, all.end);
    }
}

/* No address leads to what was there any more. The driver is asked to do as it
 * would have done, but not before it has been announced as gone: the addresses
 * can be given out again then. */
void application_registry::node_closed(const shim::node_identity &node, int fd,
                                       const card *lent)
{
    remains left    = take_all(node, fd);
    memory_map &map = memory_map::instance();
    for (const auto &[at, memory] : left.mappings) {
        map.remove(*memory);
    }
    for (auto &[at, memory] : left.mappings) {
        if (memory->whole != nullptr) {
            (void)memory->whole->forget_peers();
        }
        note(news::kind::memory_went, memory->start, memory->end);
        map.end(*memory.release());
    }
    if (lent == nullptr) {
        return;
    }
    for (const auto &[at, memory] : left.mappings) {
        note(news::kind::unmap, at.second, 0, lent);
    }
    for (const auto &[at, allocated] : left.allocations) {
        note(news::kind::release, at.second, 0, lent);
    }
}

void application_registry::look_for_closed_nodes()
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
            node_closed(used.node, used.fd, nullptr);
        }
    }
}

void application_registry::card_closing(const card &closing)
{
    for (key next{closing.node(), 0};;) {
        /* Unmaps what other cards imported; not under the lock. */
        std::unique_ptr<device_backing> ended;
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = mappings_.lower_bound(next);
        if ((found == mappings_.end()) ||
            (found->first.first != closing.node())) {
            return;
        }
        application_memory &memory = *found->second;
        if (memory.owner == &closing) {
            memory_map::instance().set_owner(memory, nullptr, nullptr);
            ended = std::move(memory.whole);
        }
        next.second = memory.start + 1;
    }
}

namespace {

class application_part final : public card_memory {
public:
    explicit application_part(card &of) : card_memory(of) {}
    ~application_part() override
    {
        application_registry::instance().card_closing(*unseen.owner);
    }
};

} // namespace

namespace card_events {

std::unique_ptr<card_part> make_part(card &opened)
{
    return std::make_unique<application_part>(opened);
}

void card_added(card &added)
{
    application_registry::instance().card_added(added);
}

void card_lost(const card &lost)
{
    application_registry::instance().card_lost(lost);
}

void node_closed(const shim::node_identity &node, int fd, const card *lent)
{
    application_registry::instance().node_closed(node, fd, lent);
}

void look_for_closed_nodes()
{
    application_registry::instance().look_for_closed_nodes();
}

std::vector<news> take_news()
{
    return application_registry::instance().take_news();
}

void tell(const std::vector<news> &all)
{
    for (const news &each : all) {
        switch (each.what) {
        case news::kind::memory_came:
            announce_allocation(to_pointer(each.start), each.end - each.start);
            break;
        case news::kind::memory_went:
            memory_map::instance().announce_gone(each.start, each.end);
            break;
        case news::kind::unmap:
            (void)each.lent->device().unmap(each.start);
            break;
        case news::kind::release:
            (void)each.lent->device().free_memory(each.start);
            break;
        }
    }
}

} // namespace card_events

} // namespace gaudi::base
