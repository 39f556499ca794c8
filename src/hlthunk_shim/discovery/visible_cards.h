/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which cards of the box this process may see, and what they are called.
 *
 * The mapping table names cards; each of the vendor's variables leaves out
 * those that it does not list. Nothing here opens a card, logs, or knows UCX.
 */
#pragma once

#include "hlthunk_shim/discovery/card_info.h"

#include <optional>
#include <string>
#include <vector>

namespace gaudi::shim {

/** A card and its logical index: it is called gaudi<index>. */
struct visible_card {
    shim::card_info info;
    unsigned index = 0;

    [[nodiscard]] std::string name() const
    {
        return "gaudi" + std::to_string(index);
    }
};

/** Values of the variables of their names; none: not set, or empty. */
struct visibility_variables {
    std::optional<std::string> mapping_table;   /**< GAUDI_MAPPING_TABLE */
    std::optional<std::string> visible_devices; /**< HABANA_VISIBLE_DEVICES */
    std::optional<std::string> visible_modules; /**< HABANA_VISIBLE_MODULES */
    std::optional<std::string> module_id;       /**< HLS_MODULE_ID */

    /** Those of the environment. */
    static visibility_variables read();
};

struct visible_cards {
    std::vector<visible_card> cards; /**< as the mapping table, else the box,
                                          orders them */
    bool chosen = false; /**< some variable chose these among the box's */
    std::string error;   /**< not empty: a value is bad; no cards then */
};

/**
 * Find the cards that are visible.
 *
 * @param box  All cards, see shim::list_cards.
 */
visible_cards find_visible_cards(const visibility_variables &variables,
                                 const std::vector<shim::card_info> &box);

} // namespace gaudi::shim
