/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/card_table.h"

#include "uct/gaudi/base/cards/driver.h"

#include <utility>

namespace gaudi::base {

bool card_table::any_card()
{
    const shim::driver *loaded = driver();
    return (loaded != nullptr) && !shim::list_cards(*loaded).empty();
}

ucs_status_t card_table::open(held_cards &cards_p, const char *chosen)
{
    card_events::look_for_driver();
    if (driver() != nullptr) {
        driver()->look_for_frameworks();
    }
    held_cards cards;
    bool had_some;
    ucs_status_t status = UCS_OK;
    card_events::news news;
    {
        const std::lock_guard<std::mutex> one_opening(opening_lock_);
        std::unique_lock<std::mutex> guard(lock_);
        (void)settle(guard, patience::any, cards);
        if (!cards) {
            in_use_.emplace();
            opened_.hold();
            cards = held_cards(&opened_);
        }
        had_some = !cards.empty();
        if (!had_some ||
            ((chosen != nullptr) && (cards.find_named(chosen) == nullptr))) {
            status = open_wished(chosen, cards, guard);
        }
        if (status == UCS_OK) {
            reset_wait_.over();
        }
        news = card_events::take_news();
    }
    card_events::tell(news);
    if (had_some) {
        note_application_cards();
    }
    cards_p = std::move(cards);
    return status;
}

/* Find the cards of this process, and not between the end of the last hold and
 * their closing.
 * @return false when they are there, and waiting is not. */
bool card_table::settle(std::unique_lock<std::mutex> &guard, patience waiting,
                        held_cards &cards_p)
{
    for (;;) {
        cards_p = cards();
        if (cards_p || !in_use_) {
            return true;
        }
        if (waiting == patience::none) {
            return false;
        }
        closed_.wait(guard);
    }
}

void open_cards::end()
{
    table_.close();
}

/* The last hold has ended: perhaps one that a child has a copy of. */
void card_table::close()
{
    if (util::is_cut_off()) {
        return;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    for (const card *each : opened_.all()) {
        if (each->is_adopted()) {
            forget_node(each->node());
        }
    }
    opened_.close();
    in_use_.reset();
    closed_.notify_all();
}

void card_table::publish(card_list fresh)
{
    for (auto &each : fresh) {
        card &added = *each;
        if (added.is_adopted()) {
            note_adopted(added.node());
        }
        added.part_ = card_events::make_part(added);
        opened_.publish(std::move(each));
        card_events::card_added(added);
    }
}

} // namespace gaudi::base
