/* The part of the device table that deals with the cards that the application
 * has open. */
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/memory/application/driver_hooks.h"
#include "uct/gaudi/base/memory/device_table.h"
#include "util/process.h"

#include <algorithm>
#include <utility>

#include <fcntl.h>

namespace gaudi::base {

namespace {

/* Cards that the application has open, and we use; and those of the processes
 * that this one was forked from, whose descriptors are no use here. Changed
 * under cards_lock_. */
struct adopted_node {
    shim::node_identity node;
    unsigned generation;
};
std::array<adopted_node, device_table::max_cards> adopted_nodes;

bool is_inherited(const shim::node_identity &node)
{
    return std::any_of(adopted_nodes.begin(), adopted_nodes.end(),
                       [&](const adopted_node &known) {
                           return (known.node == node) &&
                                  (known.generation !=
                                   util::process_generation());
                       });
}

void forget_adopted(const shim::node_identity &node)
{
    std::replace_if(
        adopted_nodes.begin(), adopted_nodes.end(),
        [&](const adopted_node &known) { return known.node == node; },
        adopted_node{});
}

void remember_adopted(const shim::node_identity &node)
{
    forget_adopted(node);
    const auto free =
        std::find_if(adopted_nodes.begin(), adopted_nodes.end(),
                     [](const adopted_node &known) {
                         return known.node == shim::node_identity();
                     });
    if (free != adopted_nodes.end()) {
        *free = {node, util::process_generation()};
    }
}

/* Bus ids may come without a domain. */
bool same_bus_id(const std::string &full, const std::string &wished)
{
    return (full == wished) || (full == "0000:" + wished);
}

/* A card under the name that it has among the visible ones, else by its place
 * in the box, or behind all names that are in use. */
bool find_by_bus_id(const std::string &bus_id,
                    const std::vector<shim::card_info> &box,
                    const shim::visible_cards &visible,
                    shim::visible_card &card_p)
{
    for (const shim::visible_card &candidate : visible.cards) {
        if (candidate.info.bus_id == bus_id) {
            card_p = candidate;
            return true;
        }
    }
    const auto place =
        std::find_if(box.begin(), box.end(), [&](const shim::card_info &info) {
            return info.bus_id == bus_id;
        });
    if (place == box.end()) {
        return false;
    }
    card_p.info         = *place;
    card_p.index        = static_cast<unsigned>(place - box.begin());
    const auto has_name = [&](const shim::visible_card &other) {
        return other.index == card_p.index;
    };
    if (std::any_of(visible.cards.begin(), visible.cards.end(), has_name)) {
        for (const shim::visible_card &other : visible.cards) {
            card_p.index = std::max(card_p.index, other.index + 1);
        }
        card_p.index += place->index;
    }
    return true;
}

} // namespace

void device_table::add_card(std::unique_ptr<card> added,
                            const shim::node_identity &node, bool adopted,
                            announcements &news)
{
    const size_t index       = card_count_;
    card_state &state        = states_[index];
    state.node               = node;
    state.adopted            = adopted;
    state.lent               = -1;
    state.unseen.owner       = added.get();
    const shim::card &driven = added->driver();
    state.unseen.start       = driven.capabilities().memory_start;
    state.unseen.end         = driven.capabilities().memory_end;

    cards_[index] = std::move(added);
    card_count_.store(index + 1, std::memory_order_release);
    application_.for_each([&](application_memory &memory) {
        if (memory.node == node) {
            claim(memory);
        }
    });
    if (!adopted) {
        return;
    }
    remember_adopted(node);

    const uint64_t page =
        std::max<uint64_t>(driven.capabilities().page_bytes, 1);
    const std::optional<uint64_t> allocated = driven.allocated_bytes();
    const bool all_seen =
        driver_is_hooked() && allocated.has_value() &&
        (*allocated <= application_.allocated_bytes(node, page));
    if (!all_seen) {
        ucs_debug("%s: the application has device memory that was not seen: "
                  "all addresses from %#lx to %#lx are taken for it",
                  cards_[index]->name().c_str(), state.unseen.start,
                  state.unseen.end);
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        state.has_unseen = true;
        ++unseen_;
        news.appeared.emplace_back(state.unseen.start, state.unseen.end);
    }
}

bool device_table::knows(const shim::node_identity &node) const
{
    for (size_t i = 0; i < card_count_; ++i) {
        if ((states_[i].node == node) && !cards_[i]->is_lost()) {
            return true;
        }
    }
    return false;
}

card *device_table::find_adopted(const std::string &bus_id) const
{
    for (size_t i = 0; i < card_count_; ++i) {
        if (states_[i].adopted && !cards_[i]->is_lost() &&
            (cards_[i]->driver().bus_id() == bus_id)) {
            return cards_[i].get();
        }
    }
    return nullptr;
}

void device_table::adopt_open_cards(const shim::driver &driver,
                                    const std::vector<shim::card_info> &box,
                                    const shim::visible_cards &visible,
                                    announcements &news)
{
    for (const shim::open_node &found :
         shim::find_open_nodes(driver.own_dev())) {
        if (knows(found.node) || is_inherited(found.node)) {
            continue;
        }
        std::unique_ptr<shim::card> opened;
        const int ret = driver.adopt(found.fd, opened);
        if (ret != 0) {
            ucs_debug("gaudi: file descriptor %d is no card of the driver "
                      "library: %s",
                      found.fd, std::strerror(-ret));
            continue;
        }
        shim::visible_card adopted;
        if (!find_by_bus_id(opened->bus_id(), box, visible, adopted)) {
            ucs_debug("gaudi: card %s, which the application has open, is not "
                      "listed",
                      opened->bus_id().c_str());
            continue;
        }
        if (card_count_ == max_cards) {
            ucs_warn("gaudi: card %s is not used: the process has opened cards "
                     "%zu times",
                     opened->bus_id().c_str(), max_cards);
            return;
        }
        add_card(
            std::make_unique<card>(adopted, card_count_, std::move(opened)),
            found.node, true, news);
        ucs_debug("%s (%s) adopted: the application has it open as file "
                  "descriptor %d",
                  adopted.name().c_str(), adopted.info.bus_id.c_str(),
                  found.fd);
    }
}

/* Cards and memory whose descriptors were closed with close(2). */
void device_table::drop_closed(announcements &news)
{
    for (size_t i = 0; i < card_count_; ++i) {
        if (states_[i].adopted &&
            !shim::is_node(cards_[i]->driver().fd(), states_[i].node)) {
            cards_[i]->driver().lose();
        }
        if (states_[i].adopted && cards_[i]->is_lost()) {
            lose_card(i, news);
        }
        if ((states_[i].lent >= 0) &&
            !shim::is_node(states_[i].lent, states_[i].node)) {
            return_lent(i, news);
        }
    }
    std::vector<shim::open_node> nodes;
    application_.collect_nodes(nodes);
    for (const shim::open_node &used : nodes) {
        if (!shim::is_node(used.fd, used.node)) {
            drop_all(
                [&](const shim::node_identity &node, int fd) {
                    return (node == used.node) && (fd == used.fd);
                },
                news, nullptr);
        }
    }
}

/* Let go of the memory of a card that is closing or closed. */
void device_table::lose_card(size_t index, announcements &news)
{
    const shim::node_identity lost = states_[index].node;
    drop_all([&](const shim::node_identity &node, int) { return node == lost; },
             news, nullptr);
    std::lock_guard<util::rw_spinlock> guard(memory_lock_);
    if (states_[index].has_unseen) {
        states_[index].has_unseen = false;
        --unseen_;
        news.gone.emplace_back(states_[index].unseen.start,
                               states_[index].unseen.end);
    }
}

/* Undo all of open_cards. Mappings of the application stay known. */
void device_table::forget_cards()
{
    const size_t count = card_count_;
    std::vector<std::unique_ptr<device_backing>> backings;
    application_.for_each([&](application_memory &memory) {
        if (memory.whole == nullptr) {
            return;
        }
        backings.push_back(std::move(memory.whole));
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        memory.owner   = nullptr;
        memory.backing = nullptr;
    });
    backings.clear(); /* unmaps what other cards imported */
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        for (size_t i = 0; i < count; ++i) {
            states_[i].has_unseen = false;
        }
        unseen_ = 0;
    }
    card_count_ = 0;
    for (size_t i = 0; i < count; ++i) {
        if (states_[i].adopted) {
            forget_adopted(states_[i].node);
        }
        cards_[i].reset();
    }
}

void device_table::look_around()
{
    const shim::driver *loaded = driver();
    announcements news;
    if (loaded == nullptr) {
        return;
    }
    {
        std::lock_guard<std::mutex> guard(cards_lock_);
        drop_closed(news);
        if (users_ > 0) {
            const auto box = shim::list_cards(*loaded);
            adopt_open_cards(*loaded, box,
                             shim::find_visible_cards(
                                 shim::visibility_variables::read(), box),
                             news);
        }
    }
    announce(news);
}

int device_table::lend(const card_wish &wish)
{
    announcements news;
    int fd = -1;
    {
        std::lock_guard<std::mutex> guard(cards_lock_);
        drop_closed(news);
        for (size_t i = 0; (i < card_count_) && (fd < 0); ++i) {
            const shim::card &driven = cards_[i]->driver();
            if (states_[i].adopted || (states_[i].lent >= 0) ||
                ((wish.bus_id != nullptr) &&
                 !same_bus_id(driven.bus_id(), wish.bus_id)) ||
                ((wish.module_id >= 0) &&
                 (driven.module_id() != wish.module_id)) ||
                ((wish.name != HLTHUNK_DEVICE_DONT_CARE) &&
                 (wish.bus_id == nullptr) &&
                 (driven.application_name() != wish.name))) {
                continue;
            }
            fd              = fcntl(driven.fd(), F_DUPFD_CLOEXEC, 0);
            states_[i].lent = fd;
            if (fd >= 0) {
                ucs_debug("%s: shared with the application as file descriptor "
                          "%d",
                          cards_[i]->name().c_str(), fd);
            }
        }
    }
    announce(news);
    return fd;
}

/* The application has closed its duplicate, and the card stays open: free what
 * it had, as the driver would have done. Not here, under the lock, but when it
 * has been announced as gone: the addresses can be given out again then. */
void device_table::return_lent(size_t index, announcements &news)
{
    const int lent     = std::exchange(states_[index].lent, -1);
    const size_t known = news.gone.size();
    returned_memory returned{index, {}, {}, {}};
    drop_all(
        [&](const shim::node_identity &node, int fd) {
            return (node == states_[index].node) && (fd == lent);
        },
        news, &returned.handles);
    for (size_t i = known; i < news.gone.size(); ++i) {
        returned.addresses.push_back(news.gone[i].first);
    }
    news.returned.push_back(std::move(returned));
    ++users_; /* it has some: there is a card */
    news.returned.back().holding.reset(this);
}

void device_table::give_back(const returned_memory &returned)
{
    const shim::card &driven = cards_[returned.index]->driver();
    for (const uint64_t address : returned.addresses) {
        (void)driven.unmap(address);
    }
    for (const uint64_t handle : returned.handles) {
        (void)driven.free_memory(handle);
    }
}

void device_table::application_opened(int fd)
{
    shim::node_identity opened;
    if (!shim::identify(fd, opened)) {
        return;
    }
    announcements news;
    {
        std::lock_guard<std::mutex> guard(cards_lock_);
        /* A node opens once: what is known of it was of an earlier time. */
        for (size_t i = 0; i < card_count_; ++i) {
            if (states_[i].adopted && (states_[i].node == opened) &&
                !cards_[i]->is_lost()) {
                cards_[i]->driver().lose();
                lose_card(i, news);
            }
        }
        drop_all([&](const shim::node_identity &node,
                     int) { return node == opened; },
                 news, nullptr);
        forget_adopted(opened);
    }
    announce(news);
    look_around();
}

void device_table::application_closing(int fd)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return;
    }
    announcements news;
    {
        std::lock_guard<std::mutex> guard(cards_lock_);
        bool known = false;
        for (size_t i = 0; i < card_count_; ++i) {
            if (cards_[i]->is_lost() || (states_[i].node != node)) {
                continue;
            }
            known = true;
            if (states_[i].adopted && (cards_[i]->driver().fd() == fd)) {
                cards_[i]->driver().expect_loss();
                lose_card(i, news);
            } else if (states_[i].lent == fd) {
                return_lent(i, news);
            }
        }
        if (!known) {
            drop_all(
                [&](const shim::node_identity &of, int through) {
                    return (of == node) && (through == fd);
                },
                news, nullptr);
        }
    }
    announce(news);
}

void device_table::application_closed(int fd)
{
    std::lock_guard<std::mutex> guard(cards_lock_);
    for (const auto &each : cards()) {
        if (states_[each->slot()].adopted && (each->driver().fd() == fd) &&
            each->is_lost()) {
            each->driver().lose();
        }
    }
}

} // namespace gaudi::base
