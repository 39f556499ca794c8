/**
 * How those above the cards hear of them.
 *
 * Who keeps something for the cards of a process derives from card_events, and
 * is in the list of memory/application/rooms.cc by a function that gives the
 * object: that of the process which asks, which may be a child that was forked.
 *
 * Called on the thread that opens, closes or loses cards, under the lock of the
 * card table unless it says otherwise, in no order among rooms.
 */
#pragma once

#include "hlthunk_shim/cards/open_nodes.h"
#include "hlthunk_shim/driver.h"
#include "uct/gaudi/base/cards/card.h"

#include <functional>
#include <span>
#include <vector>

namespace gaudi::base {

/** What is to be done when no lock is held, in order: announcements, since
 *  UCX's handlers come back to us, and what has to follow them. */
using deferred = std::vector<std::function<void()>>;

class card_events {
public:
    card_events(const card_events &)            = delete;
    card_events &operator=(const card_events &) = delete;

    /** The driver library has been loaded, and nothing was called through its
     *  table yet. Called under the lock of @ref driver. */
    virtual void driver_loaded(shim::driver &) {}

    /** Somebody is about to open the cards. Called without locks. */
    virtual void opening() {}

    /**
     * A card is open, and among the cards of the table.
     *
     * @param node     What it is known by to the application, if that has it.
     * @param adopted  The application has opened it.
     */
    virtual void card_added(card & /*added*/,
                            const shim::node_identity & /*node*/,
                            bool /*adopted*/, deferred & /*later*/)
    {}

    /** The application has closed an adopted card, or is about to. */
    virtual void card_lost(card & /*lost*/,
                           const shim::node_identity & /*node*/,
                           deferred & /*later*/)
    {}

    /**
     * The application has closed a descriptor, or is about to.
     *
     * @param fd    Of the node; -1: whichever it had.
     * @param lent  The card that we have open behind it, so that the driver
     *              keeps what the application had there; nullptr: none.
     */
    virtual void node_closed(const shim::node_identity & /*node*/, int /*fd*/,
                             card * /*lent*/, deferred & /*later*/)
    {}

    /** Descriptors may have been closed unseen. */
    virtual void look_for_closed_nodes(deferred & /*later*/) {}

    /** The last user goes. @return false when something refers to the cards,
     *  which then stay open; it was logged. */
    [[nodiscard]] virtual bool may_close_cards() { return true; }

    /** All cards are about to be closed. */
    virtual void cards_closing() {}

    /** Call a function with the object of each room. */
    template <typename Call>
    static void for_each(Call &&call)
    {
        for (card_events &(*room)() : rooms()) {
            call(room());
        }
    }

protected:
    constexpr card_events() = default;
    ~card_events()          = default;

private:
    /* All of them, from the first instruction on: cards are opened, and the
     * driver is hooked, before static objects are initialised. Defined in
     * memory/application/rooms.cc, so that who links the cards links the rooms
     * above, too. */
    static std::span<card_events &(*const)()> rooms();
};

} // namespace gaudi::base
