/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cards a planner uses, and which has memory of this process. */
#include "uct/gaudi/base/transfer/planner.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <iterator>

namespace gaudi::base {

void planner::use_cards(card &home)
{
    cards_ = home.hold();
    home_  = &home;
    std::fill_n(last_, std::size(last_), found{});
}

/* A memory domain may have opened them since the last time. */
bool planner::has_registrations()
{
    auto &registrations = registration_cache::instance();
    if (ucs_unlikely(registrations_ == nullptr) && registrations.is_open() &&
        registrations.join()) {
        registrations_.reset(&registrations);
    }
    return registrations_ != nullptr;
}

/* Whether there is a card: one that works, or one that was lost. */
bool planner::find_home()
{
    if ((home_ == nullptr) || home_->is_lost()) {
        const held_cards cards = card_table::instance().cards();
        if (card *other = cards.first()) {
            use_cards(*other);
        }
    }
    return home_ != nullptr;
}

ucs_status_t planner::look_up_device(const side &device, size_t length,
                                     device_location &where, channel *&by)
{
    if (!find_home()) {
        ucs_error("gaudi: device memory cannot be reached: this process has "
                  "opened no card");
        return UCS_ERR_NO_DEVICE;
    }
    auto known = map_.find_device(device.address, length);
    if (!known.has_value() && looks_for_cards_) {
        card_table::instance().note_acquired_cards();
        known = map_.find_device(device.address, length);
    }
    if (!known.has_value()) {
        const refusal why = map_.why_not(device.pointer(), length);
        const auto level  = (why.lost != nullptr) ? why.lost->failure_level()
                                                  : UCS_LOG_LEVEL_ERROR;
        ucs_log(level, "gaudi: %zu bytes at %p %s", length, device.pointer(),
                why.text);
        return why.status;
    }
    where                     = *known;
    const ucs_status_t status = channels_.get(*where.owner, by);
    if ((status == UCS_OK) && where.is_sole) {
        last_[oldest_] = {where, by};
        oldest_        = (oldest_ + 1) % std::size(last_);
    }
    return status;
}

} // namespace gaudi::base
