#include "uct/gaudi/base/cards/card_table.h"

#include "hlthunk_shim/cards/mapping_table.h"
#include "uct/gaudi/base/cards/driver.h"
#include "util/per_process.h"

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

card *card_table::find_named(const char *name) const
{
    if (name == nullptr) {
        return first_card();
    }
    const std::string bus_id = shim::normalize_bus_id(name);
    return find_open([&](const card &candidate) {
        return (candidate.name() == name) ||
               (candidate.name() == std::string("gaudi") + name) ||
               (candidate.device().bus_id() == bus_id);
    });
}

ucs_status_t card_table::open(const char *chosen)
{
    card_events::for_each([](card_events &room) { room.opening(); });
    if (driver() != nullptr) {
        driver()->look_for_frameworks();
    }
    bool first;
    ucs_status_t status = UCS_OK;
    deferred later;
    {
        std::lock_guard<std::mutex> one_opening(opening_lock_);
        std::unique_lock<std::mutex> guard(cards_lock_);
        first = (users_ == 0);
        if (first || ((chosen != nullptr) && (find_named(chosen) == nullptr))) {
            status = open_cards(chosen, later, guard);
        }
        if (status == UCS_OK) {
            reset_wait_.over();
            ++users_;
            admit_waiting();
        } else if (users_ == 0) {
            close_cards();
        }
    }
    run(later);
    if (!first) {
        note_application_cards();
    }
    return status;
}

bool card_table::join()
{
    unsigned users = users_;
    while ((users > 0) && !users_.compare_exchange_weak(users, users + 1)) {}
    return users > 0;
}

/* One user less, unless it is the last one. */
bool card_table::leave_to_others()
{
    unsigned users = users_;
    while ((users > 1) && !users_.compare_exchange_weak(users, users - 1)) {}
    return users > 1;
}

void card_table::close()
{
    if (leave_to_others()) {
        return;
    }
    std::lock_guard<std::mutex> guard(cards_lock_);
    while (!leave_to_others()) {
        bool may_close = true;
        card_events::for_each([&](card_events &room) {
            may_close = room.may_close_cards() && may_close;
        });
        if (!may_close) {
            return;
        }
        unsigned last = 1;
        if (users_.compare_exchange_strong(last, 0)) {
            close_cards();
            return;
        }
    }
}

/* Who waits for cards holds those that are open now, whoever opened them. */
void card_table::admit_waiting()
{
    for (card_hold *hold : std::exchange(waiting_, {})) {
        users_ += hold->begin() ? 1 : 0;
    }
}

void card_table::await(card_hold &hold)
{
    std::lock_guard<std::mutex> guard(cards_lock_);
    waiting_.push_back(&hold);
    if (users_ > 0) {
        admit_waiting();
    }
}

void card_table::stop_waiting(const card_hold &hold)
{
    std::lock_guard<std::mutex> guard(cards_lock_);
    std::erase(waiting_, &hold);
}

/* Undo all of open_cards. First nobody finds a card any more, then the rooms
 * let go of what they have for those that somebody has found. */
void card_table::close_cards()
{
    const size_t count = card_count_.exchange(0);
    card_events::for_each([](card_events &room) { room.cards_closing(); });
    for (size_t i = 0; i < count; ++i) {
        if (states_[i].adopted) {
            forget_node(states_[i].node);
        }
        cards_[i].reset();
    }
}

card *card_table::find_card(const shim::node_identity &node) const
{
    return find_open([&](const card &candidate) {
        return states_[candidate.slot()].node == node;
    });
}

void card_table::run(const deferred &later)
{
    for (const auto &work : later) {
        work();
    }
}

ucs_status_t card_hold::open(const char *chosen)
{
    card_table &table         = card_table::instance();
    const ucs_status_t status = table.open(chosen);
    if ((status == UCS_OK) && !begin()) {
        table.close();
    }
    return status;
}

ucs_status_t card_hold::open_or_wait()
{
    const ucs_status_t status = open();
    if ((status != UCS_ERR_BUSY) && (status != UCS_ERR_NO_DEVICE)) {
        return status;
    }
    waits_ = true;
    card_table::instance().await(*this);
    return UCS_OK;
}

bool card_hold::join()
{
    if (holds()) {
        return true;
    }
    card_table &table = card_table::instance();
    if (!table.join()) {
        return false;
    }
    if (!begin()) {
        table.close(); /* another thread was faster */
    }
    return true;
}

void card_hold::release()
{
    if (std::exchange(waits_, false)) {
        card_table::instance().stop_waiting(*this);
    }
    if (holder_.exchange(nothing) == own_mark()) {
        card_table::instance().close();
    }
}

} // namespace gaudi::base
