/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Events for the room above: base/memory/application defines these functions,
 * so that a program that links the cards links the memory, too.
 *
 * Called on the thread that opens, closes or loses cards, without any lock of
 * the card table: they may announce what they do to UCX.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/discovery/open_nodes.h"
#include "uct/gaudi/base/cards/card.h"

#include <memory>

namespace gaudi::base::card_events {

/** The driver library has been loaded, and nothing was called through its table
 *  yet. Called under the lock of @ref driver. */
void driver_loaded(shim::driver &driver);

/** See whether the process has loaded a driver library by now, if there is one.
 *  Cheap when there is nothing new. Called at load, and before cards are
 *  opened. */
void look_for_driver();

/** What is kept for a card as long as it is open. */
[[nodiscard]] std::unique_ptr<card_part> make_part(card &opened);

/** A card is among the cards of the process. If the application closes it on
 *  another thread meanwhile, @ref card_lost is called again afterwards. */
void card_added(card &added);

/** The application has closed a card, or is about to. */
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

} // namespace gaudi::base::card_events
