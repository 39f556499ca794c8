/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the card table that deals with the cards that the application has
 * open: adopts them, lends ours, and notices their end. */
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>

namespace gaudi::base {

namespace {

/* Whether a card of ours is what the application asks for. Bus ids may come
 * without a domain. */
bool is_wished(const card &ours, const card_wish &wish)
{
    const shim::card &driven = ours.device();
    if (wish.bus_id != nullptr) {
        return (driven.bus_id() == wish.bus_id) ||
               (driven.bus_id() == "0000:" + std::string(wish.bus_id));
    }
    return ((wish.module_id < 0) || (driven.module_id() == wish.module_id)) &&
           (!wish.kind.has_value() || driven.is_of(*wish.kind));
}

/* A card under the name that it has among the visible ones, else by its place
 * in the box, or behind all names that are in use. */
bool find_by_bus_id(const std::string &bus_id,
                    const std::vector<shim::card_info> &box,
                    const shim::visible_cards &visible,
                    shim::visible_card &card_p)
{
    const auto place = std::ranges::find(box, bus_id, &shim::card_info::bus_id);
    if (place == box.end()) {
        return false;
    }
    card_p          = {*place, static_cast<unsigned>(place - box.begin())};
    unsigned behind = 0;
    bool is_used    = false;
    for (const shim::visible_card &other : visible.cards) {
        if (other.info.bus_id == bus_id) {
            card_p = other;
            return true;
        }
        behind  = std::max(behind, other.index + 1);
        is_used = is_used || (other.index == card_p.index);
    }
    card_p.index = is_used ? behind + place->index : card_p.index;
    return true;
}

} // namespace

/* Whether an open node is one of our cards. */
bool card_table::is_ours(const shim::node_identity &node) const
{
    return std::ranges::any_of(list_all(), [&](const auto &each) {
        return (each->node_ == node) && !each->closed_;
    });
}

/* The application has closed adopted cards, or is about to. */
template <typename Condition>
card_table::card_list card_table::end_adopted(bool is_closed, Condition &&is_it)
{
    card_list ended;
    for (const auto &each : opened_.owned()) {
        if (each->adopted_ && !each->closed_ && is_it(*each)) {
            each->closed_ = true;
            each->device().expect_loss();
            if (is_closed) {
                (void)each->device().lose();
            }
            ended.push_back(each);
        }
    }
    return ended;
}

/* A node is UCX's no more, or it is another one that is called the same. */
void card_table::forget_node(const shim::node_identity &node)
{
    std::erase(nodes_of_ucx_, node);
    has_card_of_ucx_ = !nodes_of_ucx_.empty();
}

/* Publish the cards that the application has open and that are not known, lost
 * by a reset or not. By the thread that has in_driver_. */
card_table::card_list card_table::adopt(const shim::driver &driver,
                                        const std::vector<shim::card_info> &box,
                                        const shim::visible_cards &visible)
{
    card_list added;
    acquiring_ = false; /* a hook may set it from here on */
    for (const shim::open_node &found :
         shim::find_open_nodes(driver.own_dev())) {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            if (is_ours(found.node) ||
                (std::ranges::count(nodes_of_ucx_, found.node) > 0)) {
                continue;
            }
        }
        std::unique_ptr<shim::card> opened;
        const int ret = driver.adopt(found.fd, opened);
        if (ret == -EINPROGRESS) {
            acquiring_ = true;
            continue;
        }
        shim::visible_card self;
        if ((ret != 0) ||
            !find_by_bus_id(opened->bus_id(), box, visible, self)) {
            ucs_debug("gaudi: file descriptor %d of the application is not "
                      "adopted: %s",
                      found.fd,
                      (ret == 0)          ? "its card is not listed"
                      : (ret == -ENOTSUP) ? driver.why_not_supported().c_str()
                                          : std::strerror(-ret));
            continue;
        }
        const auto fresh = make_card(self, std::move(opened), found.node, true);
        bool is_open;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            is_open = (std::ranges::count(closing_, found.fd) == 0) &&
                      shim::is_node(found.fd, found.node);
            if (is_open) {
                opened_.publish(fresh);
            }
        }
        if (!is_open) { /* closed meanwhile: nothing is to be given back */
            (void)fresh->device().lose();
            continue;
        }
        ucs_debug("%s (%s) adopted: the application has it open as file "
                  "descriptor %d",
                  fresh->name().c_str(), self.info.bus_id.c_str(), found.fd);
        added.push_back(fresh);
    }
    return added;
}

/* Notice the cards and memory whose descriptors were closed with close(2). */
void card_table::drop_closed()
{
    const held_cards held = cards();
    card_list lost;
    std::vector<std::pair<std::shared_ptr<card>, int>> returned;
    if (held) {
        const std::lock_guard<std::mutex> guard(lock_);
        /* One that was reset is lost already, and its memory stays known: what
         * the program has there is no host memory. */
        lost = end_adopted(true, [](const card &each) {
            return !shim::is_node(each.device().fd(), each.node());
        });
        for (const auto &each : list_all()) {
            if ((each->lent_ >= 0) &&
                !shim::is_node(each->lent_, each->node_)) {
                returned.emplace_back(each, std::exchange(each->lent_, -1));
            }
        }
    }
    for (const auto &each : lost) {
        card_events::card_lost(*each);
    }
    for (const auto &[each, fd] : returned) {
        card_events::node_closed(each->node_, fd, each.get());
    }
    card_events::look_for_closed_nodes();
}

void card_table::note_application_cards(patience waiting)
{
    const shim::driver *loaded = driver();
    if ((loaded != nullptr) && (hook_scope::depth() == 0)) {
        loaded->look_for_frameworks();
        note_cards(waiting);
    }
}

void card_table::note_cards(patience waiting)
{
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        return;
    }
    held_cards held;
    {
        std::unique_lock<std::mutex> guard(lock_);
        held = (waiting == patience::any) ? settle(guard) : cards();
    }
    drop_closed();
    if (!held) {
        return;
    }
    card_list added;
    {
        const turn mine(*this, in_driver_, waiting);
        if (!mine) {
            return;
        }
        const auto box = shim::list_cards(*loaded);
        const auto visible =
            shim::find_visible_cards(shim::visibility_variables::read(), box);
        added = adopt(*loaded, box, visible);
    }
    announce(added);
}

int card_table::lend(const card_wish &wish)
{
    const shim::driver *loaded = driver();
    const bool hands_over =
        wish.of_framework && (loaded != nullptr) && loaded->drives_frameworks();
    drop_closed();
    held_cards held;
    card_list all;
    {
        std::unique_lock<std::mutex> guard(lock_);
        /* A card that is being opened is not listed yet. Not inside SynapseAI,
         * which may be what the other thread waits for. */
        if (!wish.of_framework) {
            changed_.wait(guard, [&] { return !in_driver_; });
        }
        held = settle(guard);
        all  = list_all();
    }
    for (const auto &each : all) {
        if (each->adopted_ || each->is_lost() || !is_wished(*each, wish)) {
            continue;
        }
        if (hands_over && (each->device().allocated_bytes().value_or(0) > 0)) {
            ucs_diag("%s: the framework does not get this card: it needs all "
                     "of the memory, some of which UCX has allocated",
                     each->name().c_str());
            continue;
        }
        int fd = -1;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            if (each->is_lost() || (each->lent_ >= 0)) {
                continue;
            }
            fd = fcntl(each->device().fd(), F_DUPFD_CLOEXEC, 0);
            if ((fd >= 0) && hands_over) {
                /* Before anybody finds that descriptor. */
                loaded->framework_opened(fd);
                acquiring_    = true;
                each->closed_ = true;
                each->device().expect_loss();
            } else {
                each->lent_ = fd;
            }
        }
        if (fd >= 0) {
            if (hands_over) {
                card_events::card_lost(*each);
            }
            ucs_debug("%s: shared with the application as file descriptor %d",
                      each->name().c_str(), fd);
            return fd;
        }
    }
    return -1;
}

void card_table::application_opened(int fd, bool by_framework)
{
    shim::node_identity opened;
    if (!shim::identify(fd, opened)) {
        return;
    }
    const shim::driver *loaded = driver();
    if (by_framework && (loaded != nullptr)) {
        loaded->framework_opened(fd);
    }
    held_cards held;
    card_list lost;
    {
        std::unique_lock<std::mutex> guard(lock_);
        held = settle(guard);
        /* A node opens once: what is known of it was of an earlier time. */
        lost = end_adopted(
            true, [&](const card &each) { return each.node() == opened; });
        forget_node(opened);
        std::erase(closing_, fd);
    }
    for (const auto &each : lost) {
        card_events::card_lost(*each);
    }
    card_events::node_closed(opened, -1, nullptr);
    if (by_framework && (loaded != nullptr) && loaded->drives_frameworks()) {
        acquiring_ = true; /* adopted later: this is a call out of SynapseAI */
    } else {
        note_cards(patience::any);
    }
}

void card_table::ucx_opened(int fd)
{
    shim::node_identity opened;
    if (shim::identify(fd, opened)) {
        const std::lock_guard<std::mutex> guard(lock_);
        forget_node(opened);
        nodes_of_ucx_.push_back(opened);
        has_card_of_ucx_ = true;
        ucs_debug("gaudi: UCX has opened a card for itself as file descriptor "
                  "%d",
                  fd);
    }
}

void card_table::application_closing(int fd)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return;
    }
    if (driver() != nullptr) {
        driver()->application_closing(fd);
    }
    held_cards held;
    card_list lost;
    std::shared_ptr<card> returned;
    bool stays = false; /* open, by another descriptor */
    {
        std::unique_lock<std::mutex> guard(lock_);
        held = settle(guard);
        closing_.push_back(fd);
        lost = end_adopted(false, [&](const card &each) {
            return (each.node() == node) && (each.device().fd() == fd);
        });
        for (const auto &each : list_all()) {
            if ((each->lent_ == fd) && (each->node_ == node)) {
                each->lent_ = -1;
                returned    = each;
            }
        }
        stays = is_ours(node);
        if (!stays && lost.empty()) {
            forget_node(node);
        }
    }
    for (const auto &each : lost) {
        card_events::card_lost(*each);
    }
    if (lost.empty() && ((returned != nullptr) || !stays)) {
        card_events::node_closed(node, fd, returned.get());
    }
}

void card_table::application_closed(int fd)
{
    const held_cards held = cards();
    for (card *each : held.all()) {
        if (each->is_adopted() && (each->device().fd() == fd) &&
            each->is_lost()) {
            (void)each->device().lose();
        }
    }
    const std::lock_guard<std::mutex> guard(lock_);
    std::erase(closing_, fd);
}

} // namespace gaudi::base
