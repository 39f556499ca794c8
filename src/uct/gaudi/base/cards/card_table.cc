#include "uct/gaudi/base/cards/card_table.h"

#include "uct/gaudi/base/cards/driver.h"
#include "util/process.h"

#include <utility>

namespace gaudi::base {

card_table &card_table::instance()
{
    return util::of_this_process<card_table>();
}

bool card_table::any_card()
{
    const shim::driver *loaded = driver();
    return (loaded != nullptr) && !shim::list_cards(*loaded).empty();
}

held_cards card_table::cards()
{
    const std::lock_guard<util::brief_lock> guard(home_lock_);
    return held_cards(home_.lock());
}

ucs_status_t card_table::open(held_cards &cards_p, const char *chosen)
{
    card_events::opening();
    if (driver() != nullptr) {
        driver()->look_for_frameworks();
    }
    held_cards cards;
    bool had_some;
    ucs_status_t status = UCS_OK;
    std::vector<card_events::news> news;
    {
        const std::lock_guard<std::mutex> one_opening(opening_lock_);
        std::unique_lock<std::mutex> guard(lock_);
        (void)settle(guard, patience::any, cards);
        if (!cards) {
            cards = make_home();
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
        cards_p.cards_ = home_.lock();
        if (cards_p || !exists_) {
            return true;
        }
        if (waiting == patience::none) {
            return false;
        }
        closed_.wait(guard);
    }
}

/* What cards are put in. */
held_cards card_table::make_home()
{
    std::shared_ptr<open_cards> home(new open_cards,
                                     [this](open_cards *last) { close(last); });
    exists_ = true;
    const std::lock_guard<util::brief_lock> guard(home_lock_);
    home_ = home;
    return held_cards(std::move(home));
}

/* The last hold has ended: perhaps one that a child has inherited. */
void card_table::close(open_cards *last)
{
    if (last->is_inherited()) {
        return;
    }
    if (!exists_) { /* made without memory for it */
        delete last;
        return;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    for (const card *each : last->all()) {
        if (each->is_adopted()) {
            forget_node(each->node());
        }
    }
    delete last;
    exists_ = false;
    closed_.notify_all();
}

void card_table::publish(const held_cards &cards, card_list fresh)
{
    for (auto &each : fresh) {
        card &added = *each;
        if (added.is_adopted()) {
            note_own_node(added.node());
        }
        added.home_ = cards.cards_;
        added.part_ = card_events::make_part(added);
        cards.cards_->publish(std::move(each));
        card_events::card_added(added);
    }
}

} // namespace gaudi::base
