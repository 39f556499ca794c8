/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How the room above the cards hears of them: base/memory/application defines
 * these, so that who links the cards links the memory, too.
 *
 * Called on the thread that opens, closes or loses cards, under the lock of the
 * card table unless something else is said.
 */
#pragma once

#include "hlthunk_shim/cards/driver.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/cards/card.h"

#include <functional>
#include <memory>
#include <vector>

namespace gaudi::base::card_events {

/** The driver library has been loaded, and nothing was called through its table
 *  yet. Called under the lock of @ref driver. */
void driver_loaded(shim::driver &driver);

/** See whether the process has loaded a driver library by now, if there is one.
 *  Cheap when there is nothing new. Called without locks: at load, and before
 *  cards are opened. */
void look_for_driver();

/** What is kept for a card as long as it is open. */
[[nodiscard]] std::unique_ptr<card_part> make_part(card &opened);

/** A card is open, and among the cards of the process. */
void card_added(card &added);

/** The application has closed an adopted card, or is about to. */
void card_lost(const card &lost);

/**
 * The application has closed a descriptor, or is about to.
 *
 * @param fd    Of the node; -1: whichever it had.
 * @param lent  The card that we have open behind it, so that the driver keeps
 *              what the application had there; nullptr: none.
 */
void node_closed(const shim::node_identity &node, int fd, const card *lent);

/** Descriptors may have been closed unseen. */
void look_for_closed_nodes();

/** What came of the above that is to be done when no lock is held, in its
 * order: UCX's handlers come back to us. */
using news = std::vector<std::function<void()>>;

/** Take what there is of it; */
[[nodiscard]] news take_news();

/** and do it. Called without locks. */
inline void tell(const news &all)
{
    for (const auto &each : all) {
        each();
    }
}

} // namespace gaudi::base::card_events
