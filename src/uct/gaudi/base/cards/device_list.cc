/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/device_list.h"

#include "hlthunk_shim/discovery/mapping_table.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace gaudi::base {

device_selection select_devices(const std::string &text,
                                const shim::visible_cards &visible)
{
    const std::vector<shim::visible_card> &cards = visible.cards;
    device_selection result;

    if ((text == "auto") || (text == "all")) {
        const bool every = visible.chosen || (text == "all");
        result.cards.resize(cards.size());
        std::iota(result.cards.begin(), result.cards.end(), size_t{0});
        result.wanted =
            every ? cards.size() : std::min<size_t>(1, cards.size());
        return result;
    }

    std::istringstream list(text);
    std::string item;
    while (std::getline(list, item, ',')) {
        const std::string bus_id = shim::normalize_bus_id(item);
        const auto found = std::ranges::find_if(cards, [&](const auto &card) {
            return (item == card.name()) ||
                   (item == std::to_string(card.index)) ||
                   (bus_id == card.info.bus_id);
        });
        if (found == cards.end()) {
            result.error =
                "'" + item + "' is none of the " +
                std::to_string(cards.size()) + " cards " +
                (visible.chosen ? "that are visible" : "of this machine");
            return result;
        }
        const auto place = static_cast<size_t>(found - cards.begin());
        if (std::ranges::count(result.cards, place) > 0) {
            result.error = "'" + item + "' is listed twice";
            return result;
        }
        result.cards.push_back(place);
    }
    if (result.cards.empty()) {
        result.error = "no card is listed";
    }
    result.wanted = result.cards.size();
    result.named  = true;
    return result;
}

} // namespace gaudi::base
