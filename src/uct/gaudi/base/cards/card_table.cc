/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/card_table.h"

#include "uct/gaudi/base/cards/driver.h"

#include <utility>

namespace gaudi::base {

card_table::turn::turn(card_table &of, bool &flag, patience waiting) : of_(of)
{
    std::unique_lock<std::mutex> guard(of.lock_);
    if (waiting == patience::any) {
        of.changed_.wait(guard, [&] { return !flag; });
    }
    if (!std::exchange(flag, true)) {
        flag_ = &flag;
    }
}

card_table::turn::~turn()
{
    if (flag_ != nullptr) {
        const std::lock_guard<std::mutex> guard(of_.lock_);
        *flag_ = false;
        of_.changed_.notify_all();
    }
}

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
    {
        const turn mine(*this, opening_);
        {
            std::unique_lock<std::mutex> guard(lock_);
            cards = settle(guard);
            if (!cards) {
                in_use_.emplace();
                opened_.hold();
                cards = held_cards(&opened_);
            }
        }
        had_some = !cards.empty();
        if (!had_some ||
            ((chosen != nullptr) && (cards.find_named(chosen) == nullptr))) {
            status = open_wanted(chosen, cards);
        }
    }
    if (had_some) {
        note_application_cards();
    }
    cards_p = std::move(cards);
    return status;
}

/* Hold the cards of this process, if there are any. Waits for their closing,
 * when the last user has just let go of them. */
held_cards card_table::settle(std::unique_lock<std::mutex> &guard)
{
    held_cards held;
    changed_.wait(guard, [&] {
        held = cards();
        return held || !in_use_;
    });
    return held;
}

card_table::card_list card_table::list_all() const
{
    card_list all = opened_.owned();
    for (const auto &[_, each] : pending_) {
        all.push_back(each);
    }
    return all;
}

void open_cards::close()
{
    table_.close();
}

/* The last hold has ended: perhaps one that a child has a copy of. */
void card_table::close()
{
    if (util::is_cut_off()) {
        return;
    }
    card_list closing;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        closing = opened_.take();
    }
    /* Memory of one card may be mapped on another: first all of that. */
    for (const auto &each : closing) {
        each->part_.reset();
    }
    closing.clear();
    const std::lock_guard<std::mutex> guard(lock_);
    in_use_.reset();
    changed_.notify_all();
}

std::shared_ptr<card> card_table::make_card(const shim::visible_card &self,
                                            std::unique_ptr<shim::card> device,
                                            const shim::node_identity &node,
                                            bool adopted)
{
    auto made =
        std::make_shared<card>(self, std::move(device), node, adopted, opened_);
    made->part_ = card_events::make_part(*made);
    return made;
}

/* Cards have been published. */
void card_table::announce(const card_list &added)
{
    for (const auto &each : added) {
        card_events::card_added(*each);
        bool closed;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            closed = each->closed_;
        }
        if (closed) { /* meanwhile */
            card_events::card_lost(*each);
        }
    }
}

} // namespace gaudi::base
