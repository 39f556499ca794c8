/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * GAUDI_MAPPING_TABLE: which logical index names which card.
 *
 * Reads the text alone; whether its cards exist is for @ref find_visible_cards.
 * Any thread may call it. Must not know UCX: a fuzz target is built of it.
 */
#pragma once

#include <string>
#include <vector>

namespace gaudi::shim {

/** One object of the table. */
struct mapping_entry {
    unsigned index;     /**< the card is called gaudi<index> */
    unsigned module_id; /**< OCP module */
    std::string bus_id; /**< "dddd:bb:dd.f" in lower case */
};

struct mapping_table {
    std::vector<mapping_entry> entries; /**< in the order of the text */
    std::string error; /**< not empty: why the text is refused, and where; there
                            are no entries then */
};

/** Most entries of a table. */
inline constexpr size_t max_mapping_entries = 64;

/** Largest logical index and module id. */
inline constexpr unsigned max_mapping_number = 9999;

/** Whether a value of GAUDI_MAPPING_TABLE is the table itself, starting with
 *  '[' behind spaces, and not the path of a file. */
bool is_mapping_text(const std::string &value);

/**
 * Read a table from its text.
 *
 * @param json  An array of objects, each with index, module_id and bus_id.
 *              Other members mean nothing here.
 */
mapping_table parse_mapping_table(const std::string &json);

/**
 * Read the table that a value of GAUDI_MAPPING_TABLE means.
 *
 * @param value  The table itself, or the path of a file.
 */
mapping_table read_mapping_table(const std::string &value);

/** "dddd:bb:dd.f" in lower case for a bus id with or without its domain; empty
 *  when the text is none. */
std::string normalize_bus_id(const std::string &text);

} // namespace gaudi::shim
