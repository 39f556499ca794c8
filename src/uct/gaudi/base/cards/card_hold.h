/**
 * A hold on the open cards of this process: none is closed while it lasts.
 *
 * Whoever keeps a pointer to a card, or what belongs to one, has a hold for as
 * long: a memory domain, which opens cards, and whatever may be used beside a
 * memory domain that could open none. What a forked child inherits is a hold on
 * the parent's cards, and its end lets nothing go there.
 *
 * Any thread may join; the rest is for one thread at a time.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <atomic>

namespace gaudi::base {

class card_hold {
public:
    card_hold() = default;
    ~card_hold() { release(); }
    card_hold(const card_hold &)            = delete;
    card_hold &operator=(const card_hold &) = delete;

    /** Open the cards, see card_table::open. Once. */
    [[nodiscard]] ucs_status_t open();

    /**
     * Hold the cards that somebody has opened. Costs a load when that is so
     * already.
     *
     * @return false when none is open.
     */
    [[nodiscard]] bool join();

    /** Whether it lasts. */
    [[nodiscard]] bool is_held() const;

    /** End it. The last one of the process closes the cards. */
    void release();

    /** Take over the hold of another one, if that has one. */
    void take(card_hold &other);

    /** Never close the cards: something refers to them that cannot go. */
    void abandon();

private:
    static constexpr unsigned nothing = 0;

    /* Of the process that holds: one more than its generation. */
    static unsigned own_mark();

    std::atomic<unsigned> holder_{nothing};
};

} // namespace gaudi::base
