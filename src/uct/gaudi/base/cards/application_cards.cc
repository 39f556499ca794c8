/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the card table that deals with the cards that the application has
 * open. */
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/driver.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::base {

namespace {

/* The open nodes that UCX has opened for itself, perhaps before a fork. Changed
 * under lock_. */
constinit std::array<shim::node_identity, 64> nodes_of_ucx{};

bool is_of_ucx(const shim::node_identity &node)
{
    return std::ranges::find(nodes_of_ucx, node) != nodes_of_ucx.end();
}

/* The open nodes of the application that a process has used: in a child, which
 * has inherited the descriptors, the driver would act for the parent. Changed
 * under lock_. */
struct adopted_node {
    shim::node_identity node;
    pid_t by = 0;
};
constinit std::array<adopted_node, 64> adopted_nodes{};

bool is_inherited(const shim::node_identity &node)
{
    return std::ranges::any_of(adopted_nodes, [&](const adopted_node &each) {
        return (each.node == node) && (each.by != getpid());
    });
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
    const auto place = std::ranges::find(box, bus_id, &shim::card_info::bus_id);
    if (place == box.end()) {
        return false;
    }
    card_p.info  = *place;
    card_p.index = static_cast<unsigned>(place - box.begin());
    if (std::ranges::count(visible.cards, card_p.index,
                           &shim::visible_card::index) > 0) {
        for (const shim::visible_card &other : visible.cards) {
            card_p.index = std::max(card_p.index, other.index + 1);
        }
        card_p.index += place->index;
    }
    return true;
}

} // namespace

/* A node is used no more, or it is another one that is called the same. */
void card_table::forget_node(const shim::node_identity &node)
{
    std::ranges::replace(nodes_of_ucx, node, shim::node_identity());
    for (adopted_node &each : adopted_nodes) {
        each = (each.node == node) ? adopted_node() : each;
    }
    look_for_card_of_ucx();
}

void card_table::note_adopted(const shim::node_identity &node)
{
    forget_node(node);
    const auto free = std::ranges::find(adopted_nodes, shim::node_identity(),
                                        &adopted_node::node);
    if (free != adopted_nodes.end()) {
        *free = {node, getpid()};
    }
}

/* For those who may not take the lock. */
void card_table::look_for_card_of_ucx()
{
    has_card_of_ucx_ =
        std::ranges::any_of(nodes_of_ucx, [](const shim::node_identity &node) {
            return node != shim::node_identity();
        });
}

/* Collect the cards that the application has open and that are not known, lost
 * by a reset or not. */
void card_table::adopt_open_cards(const shim::driver &driver,
                                  const std::vector<shim::card_info> &box,
                                  const shim::visible_cards &visible,
                                  const held_cards &known, card_list &adopted)
{
    acquiring_ = false;
    for (const shim::open_node &found :
         shim::find_open_nodes(driver.own_dev())) {
        const auto is_it = [&](const auto &each) {
            return (each->node_ == found.node) && !each->closed_;
        };
        const auto all = known.all();
        if (std::any_of(all.begin(), all.end(), is_it) ||
            std::any_of(adopted.begin(), adopted.end(), is_it) ||
            is_of_ucx(found.node) || is_inherited(found.node)) {
            continue;
        }
        std::unique_ptr<shim::card> opened;
        const int ret = driver.adopt(found.fd, opened);
        if (ret == -EINPROGRESS) {
            acquiring_ = true;
            continue;
        }
        if (ret == -ENOTSUP) {
            ucs_debug("gaudi: the card of file descriptor %d cannot be used: "
                      "%s",
                      found.fd, driver.why_not_supported().c_str());
            continue;
        }
        if (ret != 0) {
            ucs_debug("gaudi: file descriptor %d is no card of the driver "
                      "library: %s",
                      found.fd, std::strerror(-ret));
            continue;
        }
        shim::visible_card self;
        if (!find_by_bus_id(opened->bus_id(), box, visible, self)) {
            ucs_debug("gaudi: card %s, which the application has open, is not "
                      "listed",
                      opened->bus_id().c_str());
            continue;
        }
        ucs_debug("%s (%s) adopted: the application has it open as file "
                  "descriptor %d",
                  self.name().c_str(), self.info.bus_id.c_str(), opened->fd());
        adopted.push_back(
            std::make_unique<card>(self, std::move(opened), found.node, true));
    }
}

/* Cards and memory whose descriptors were closed with close(2). */
void card_table::drop_closed(const held_cards &cards)
{
    for (card *each : cards.all()) {
        /* One that was reset is lost, too, and its memory stays known: what
         * the program has there is no host memory. */
        if (each->adopted_ && !each->closed_ &&
            !shim::is_node(each->device().fd(), each->node_)) {
            (void)each->device().lose();
            lose(*each);
        }
        if ((each->lent_ >= 0) && !shim::is_node(each->lent_, each->node_)) {
            return_lent(*each);
        }
    }
    card_events::look_for_closed_nodes();
}

/* A card is closing or closed: others let go of what they have for it. */
void card_table::lose(card &lost)
{
    lost.closed_ = true;
    card_events::card_lost(lost);
}

void card_table::note_application_cards(patience waiting)
{
    const shim::driver *loaded = driver();
    if ((loaded == nullptr) || reporting_scope::is_reporting()) {
        return;
    }
    loaded->look_for_frameworks();
    note_cards(waiting);
}

void card_table::note_cards(patience waiting)
{
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        return;
    }
    under_lock(
        [&](const held_cards &cards) {
            drop_closed(cards);
            if (!cards) {
                return;
            }
            const auto box = shim::list_cards(*loaded);
            card_list fresh;
            adopt_open_cards(*loaded, box,
                             shim::find_visible_cards(
                                 shim::visibility_variables::read(), box),
                             cards, fresh);
            publish(std::move(fresh));
        },
        waiting);
}

/* A framework's runtime gets a card that we have open. False when it cannot use
 * it, for want of memory that we have there. */
bool card_table::hand_over(card &wanted)
{
    const shim::card &driven = wanted.device();
    if (driven.allocated_bytes().value_or(0) > 0) {
        ucs_diag("%s: the framework does not get this card: it needs all of "
                 "the memory, some of which UCX has allocated",
                 wanted.name().c_str());
        return false;
    }
    driven.expect_loss();
    lose(wanted);
    return true;
}

int card_table::lend(const card_wish &wish)
{
    const shim::driver *loaded = driver();
    int fd                     = -1;
    const auto is_wished       = [&](const card &each) {
        const shim::card &driven = each.device();
        return !each.adopted_ && (each.lent_ < 0) &&
               ((wish.bus_id == nullptr) ||
                same_bus_id(driven.bus_id(), wish.bus_id)) &&
               ((wish.module_id < 0) ||
                (driven.module_id() == wish.module_id)) &&
               (!wish.kind.has_value() || (wish.bus_id != nullptr) ||
                driven.is_of(*wish.kind));
    };
    under_lock([&](const held_cards &cards) {
        drop_closed(cards);
        for (card *each : cards.all()) {
            if ((fd >= 0) || each->is_lost() || !is_wished(*each)) {
                continue;
            }
            const bool taken_over =
                wish.of_framework && loaded->drives_frameworks();
            if (taken_over && !hand_over(*each)) {
                continue;
            }
            fd = fcntl(each->device().fd(), F_DUPFD_CLOEXEC, 0);
            if (taken_over && (fd >= 0)) {
                loaded->framework_opened(fd);
                acquiring_ = true;
            } else {
                each->lent_ = fd;
            }
            if (fd >= 0) {
                ucs_debug("%s: shared with the application as file descriptor "
                          "%d",
                          each->name().c_str(), fd);
            }
        }
    });
    return fd;
}

/* The application has closed its duplicate, and the card stays open, held until
 * what the application had there has been given back. */
void card_table::return_lent(card &lent)
{
    const int fd = std::exchange(lent.lent_, -1);
    card_events::node_closed(lent.node_, fd, &lent);
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
    under_lock([&](const held_cards &cards) {
        /* A node opens once: what is known of it was of an earlier time. */
        for (card *each : cards.all()) {
            if (each->adopted_ && !each->closed_ && (each->node_ == opened)) {
                (void)each->device().lose();
                lose(*each);
            }
        }
        card_events::node_closed(opened, -1, nullptr);
        forget_node(opened);
    });
    note_cards(patience::any);
}

void card_table::ucx_opened(int fd)
{
    shim::node_identity opened;
    if (!shim::identify(fd, opened)) {
        return;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    const auto free = std::ranges::find(nodes_of_ucx, shim::node_identity());
    if ((free != nodes_of_ucx.end()) && !is_of_ucx(opened)) {
        *free = opened;
    }
    look_for_card_of_ucx();
    ucs_debug("gaudi: UCX has opened a card for itself as file descriptor %d",
              fd);
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
    under_lock([&](const held_cards &cards) {
        bool known = false;
        for (card *each : cards.all()) {
            if ((each->node_ != node) || each->closed_) {
                continue;
            }
            if (each->adopted_ && (each->device().fd() == fd)) {
                known = true;
                each->device().expect_loss();
                lose(*each);
            } else if (!each->is_lost()) {
                known = true;
                if (each->lent_ == fd) {
                    return_lent(*each);
                }
            }
        }
        if (!known) {
            card_events::node_closed(node, fd, nullptr);
            forget_node(node);
        }
    });
}

void card_table::application_closed(int fd)
{
    const held_cards cards = this->cards();
    for (card *each : cards.all()) {
        if (each->is_adopted() && (each->device().fd() == fd) &&
            each->is_lost()) {
            (void)each->device().lose();
        }
    }
}

} // namespace gaudi::base
