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

namespace gaudi::base {

namespace {

/* The open nodes of the application that this process uses, those that UCX has
 * opened for itself, and those that it inherited from the process that it was
 * forked from, whose descriptors are no use here. The one thing of the cards
 * that a forked child keeps. Changed under cards_lock_, by one process at a
 * time. */
struct known_node {
    shim::node_identity node;
    unsigned generation = 0;
    bool of_ucx         = false;
};
constinit std::array<known_node, max_cards> known_nodes{};

void note_node(const known_node &noted)
{
    const auto free = std::find_if(
        known_nodes.begin(), known_nodes.end(), [](const known_node &known) {
            return known.node == shim::node_identity();
        });
    if (free != known_nodes.end()) {
        *free = noted;
    }
}

/* Whether the application has opened it, as far as is known. */
bool can_be_adopted(const shim::node_identity &node)
{
    return std::none_of(
        known_nodes.begin(), known_nodes.end(), [&](const known_node &known) {
            return (known.node == node) &&
                   (known.of_ucx ||
                    (known.generation != util::process_generation()));
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

void close_node(const shim::node_identity &node, int fd, card *lent,
                deferred &later)
{
    card_events::for_each(
        [&](card_events &room) { room.node_closed(node, fd, lent, later); });
}

} // namespace

/* This process uses a node no more, or it is another one that is called the
 * same. */
void card_table::forget_node(const shim::node_identity &node)
{
    std::replace_if(
        known_nodes.begin(), known_nodes.end(),
        [&](const known_node &known) { return known.node == node; },
        known_node{});
    look_for_card_of_ucx();
}

/* For those who may not take the lock. */
void card_table::look_for_card_of_ucx()
{
    has_card_of_ucx_ = std::any_of(
        known_nodes.begin(), known_nodes.end(), [](const known_node &known) {
            return known.of_ucx &&
                   (known.generation == util::process_generation());
        });
}

void card_table::add_card(const shim::visible_card &info,
                          std::unique_ptr<shim::card> opened,
                          const shim::node_identity &node, bool adopted,
                          deferred &later)
{
    const size_t index = card_count_;
    card_state &state  = states_[index];
    cards_[index]      = std::make_unique<card>(info, index, std::move(opened));
    state.node         = node;
    state.adopted      = adopted;
    state.closed       = false;
    state.lent         = -1;
    card &added        = *cards_[index];
    card_count_.store(index + 1, std::memory_order_release);
    if (adopted) {
        forget_node(node);
        note_node({node, util::process_generation()});
    }
    card_events::for_each([&](card_events &room) {
        room.card_added(added, node, adopted, later);
    });
}

/* Whether a card of this process is behind an open node: one that was reset,
 * too. */
bool card_table::is_known(const shim::node_identity &node) const
{
    for (const auto &each : cards()) {
        const card_state &state = states_[each->slot()];
        if ((state.node == node) && !state.closed) {
            return true;
        }
    }
    return false;
}

void card_table::adopt_open_cards(const shim::driver &driver,
                                  const std::vector<shim::card_info> &box,
                                  const shim::visible_cards &visible,
                                  deferred &later)
{
    acquiring_ = false;
    for (const shim::open_node &found :
         shim::find_open_nodes(driver.own_dev())) {
        if (is_known(found.node) || !can_be_adopted(found.node)) {
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
        add_card(adopted, std::move(opened), found.node, true, later);
        ucs_debug("%s (%s) adopted: the application has it open as file "
                  "descriptor %d",
                  adopted.name().c_str(), adopted.info.bus_id.c_str(),
                  cards_[card_count_ - 1]->device().fd());
    }
}

/* Cards and memory whose descriptors were closed with close(2). */
void card_table::drop_closed(deferred &later)
{
    for (size_t i = 0; i < card_count_; ++i) {
        const shim::card &driven = cards_[i]->device();
        /* One that was reset is lost, too, and its memory stays known: what
         * the program has there is no host memory. */
        if (states_[i].adopted && !states_[i].closed &&
            !shim::is_node(driven.fd(), states_[i].node)) {
            (void)driven.lose();
            lose(i, later);
        }
        if ((states_[i].lent >= 0) &&
            !shim::is_node(states_[i].lent, states_[i].node)) {
            return_lent(i, later);
        }
    }
    card_events::for_each(
        [&](card_events &room) { room.look_for_closed_nodes(later); });
}

/* A card is closing or closed: others let go of what they have for it. */
void card_table::lose(size_t index, deferred &later)
{
    states_[index].closed = true;
    card_events::for_each([&](card_events &room) {
        room.card_lost(*cards_[index], states_[index].node, later);
    });
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
    auto cards_guard           = (waiting == patience::none)
                                     ? std::unique_lock(cards_lock_, std::try_to_lock)
                                     : std::unique_lock(cards_lock_);
    if ((loaded == nullptr) || !cards_guard) {
        return;
    }
    deferred later;
    drop_closed(later);
    if ((users_ > 0) || !waiting_.empty()) {
        const auto box = shim::list_cards(*loaded);
        adopt_open_cards(
            *loaded, box,
            shim::find_visible_cards(shim::visibility_variables::read(), box),
            later);
        if (card_count_ > 0) {
            admit_waiting();
        }
    }
    cards_guard.unlock();
    run(later);
}

/* A framework's runtime gets a card that we have open. False when it cannot use
 * it, for want of memory that we have there. */
bool card_table::hand_over(size_t index, deferred &later)
{
    const shim::card &driven = cards_[index]->device();
    if (driven.allocated_bytes().value_or(0) > 0) {
        ucs_diag("%s: the framework does not get this card: it needs all of "
                 "the memory, some of which UCX has allocated",
                 cards_[index]->name().c_str());
        return false;
    }
    if (!driven.is_lost()) {
        driven.expect_loss();
        lose(index, later);
    }
    return true;
}

int card_table::lend(const card_wish &wish)
{
    const shim::driver *loaded = driver();
    int fd                     = -1;
    under_lock([&](deferred &later) {
        drop_closed(later);
        for (size_t i = 0; (i < card_count_) && (fd < 0); ++i) {
            const shim::card &driven = cards_[i]->device();
            if (states_[i].adopted || driven.is_lost() ||
                (states_[i].lent >= 0) ||
                ((wish.bus_id != nullptr) &&
                 !same_bus_id(driven.bus_id(), wish.bus_id)) ||
                ((wish.module_id >= 0) &&
                 (driven.module_id() != wish.module_id)) ||
                (wish.kind.has_value() && (wish.bus_id == nullptr) &&
                 !driven.is_of(*wish.kind))) {
                continue;
            }
            const bool taken_over =
                wish.of_framework && loaded->drives_frameworks();
            if (taken_over && !hand_over(i, later)) {
                continue;
            }
            fd = fcntl(driven.fd(), F_DUPFD_CLOEXEC, 0);
            if (taken_over && (fd >= 0)) {
                loaded->framework_opened(fd);
                acquiring_ = true;
            } else {
                states_[i].lent = fd;
            }
            if (fd >= 0) {
                ucs_debug("%s: shared with the application as file descriptor "
                          "%d",
                          cards_[i]->name().c_str(), fd);
            }
        }
    });
    return fd;
}

/* The application has closed its duplicate, and the card stays open, held until
 * what the application had there has been given back. */
void card_table::return_lent(size_t index, deferred &later)
{
    const int lent = std::exchange(states_[index].lent, -1);
    close_node(states_[index].node, lent, cards_[index].get(), later);
    /* Not to end under cards_lock_. */
    const auto end = [](card_table *table) { table->close(); };
    ++users_; /* it has some: there is a card */
    later.emplace_back([holding = std::shared_ptr<card_table>(this, end)] {});
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
    under_lock([&](deferred &later) {
        /* A node opens once: what is known of it was of an earlier time. */
        for (size_t i = 0; i < card_count_; ++i) {
            if (states_[i].adopted && !states_[i].closed &&
                (states_[i].node == opened)) {
                (void)cards_[i]->device().lose();
                lose(i, later);
            }
        }
        close_node(opened, -1, nullptr, later);
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
    std::lock_guard<std::mutex> guard(cards_lock_);
    forget_node(opened);
    note_node({opened, util::process_generation(), true});
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
    under_lock([&](deferred &later) {
        bool known = false;
        for (size_t i = 0; i < card_count_; ++i) {
            if ((states_[i].node != node) || states_[i].closed) {
                continue;
            }
            if (states_[i].adopted && (cards_[i]->device().fd() == fd)) {
                known = true;
                cards_[i]->device().expect_loss();
                lose(i, later);
                continue;
            }
            if (cards_[i]->is_lost()) {
                continue;
            }
            known = true;
            if (states_[i].lent == fd) {
                return_lent(i, later);
            }
        }
        if (!known) {
            close_node(node, fd, nullptr, later);
            std::replace_if(
                known_nodes.begin(), known_nodes.end(),
                [&](const known_node &noted) {
                    return noted.of_ucx && (noted.node == node);
                },
                known_node{});
            look_for_card_of_ucx();
        }
    });
}

void card_table::application_closed(int fd)
{
    std::lock_guard<std::mutex> guard(cards_lock_);
    for (const auto &each : cards()) {
        if (states_[each->slot()].adopted && (each->device().fd() == fd) &&
            each->is_lost()) {
            (void)each->device().lose();
        }
    }
}

} // namespace gaudi::base
