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

#include <memory>
#include <vector>

namespace gaudi::base::card_events {

/** The driver library has been loaded, and nothing was called through its table
 *  yet. Called under the lock of @ref driver. */
void driver_loaded(shim::driver &driver);

/** Somebody is about to open the cards. Called without locks. */
void opening();

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

/** What came of the above that is to be done when no lock is held, since UCX's
 *  handlers come back to us. */
struct news {
    enum class kind { memory_came, memory_went, unmap, release };
    kind what;
    uint64_t start;   /**< device address; of release: the driver's handle */
    uint64_t end;     /**< of memory that came or went */
    const card *lent; /**< of the others: on which card; it is held */
    held_cards held;
};

/** Take what there is of it; */
[[nodiscard]] std::vector<news> take_news();
/** and do it, in its order. Called without locks. */
void tell(const std::vector<news> &all);

} // namespace gaudi::base::card_events
