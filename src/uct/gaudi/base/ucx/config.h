/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The process-wide variables, UCX_GAUDI_*.
 *
 * Parsed at load, since UCX warns of variables that nobody used and wants to
 * know the memory type by then, and at the first use, which is when a program
 * has set what it sets by itself.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** Values of UCX_GAUDI_ENGINE, in the order of their names. */
enum engine_choice : unsigned { engine_auto, engine_cs, engine_synapse };

/** Values of UCX_GAUDI_CARD_KIND, in the order of their names. */
enum kind_choice : unsigned { kind_auto, kind_gaudi2, kind_gaudi3 };

struct global_config {
    char *driver;         /**< auto, hlthunk, emulator, or a path */
    char *devices;        /**< auto, all, or a list */
    char *memory_type;    /**< auto, or the UCX memory type to take */
    double reset_timeout; /**< seconds */
    unsigned engine;      /**< engine_choice */
    char *routes;         /**< between cards, best first */
    char *ipc_folder;     /**< that pods share; empty: none */
    unsigned card_kind;   /**< kind_choice */
    int synapse_host_map; /**< whether SynapseAI maps the application's memory
                           */
};

/** How UCX's lists of variables name those of a class. */
template <typename Owner>
constexpr ucs_config_global_list_entry_t make_config_entry()
{
    ucs_config_global_list_entry_t entry{};
    entry.name   = Owner::title;
    entry.prefix = Owner::prefix;
    entry.table  = Owner::config_table;
    entry.size   = sizeof(typename Owner::config);
    return entry;
}

/** Parse the variables of a table, those of configuration files included. UCX
 *  1.14 and before take the table and the prefix from the list's entry.
 *  @param values  Filled; ucs_config_parser_release_opts frees what is in it.
 */
template <typename Entry>
ucs_status_t fill_config(void *values, Entry &from, bool ignore_errors)
{
    if constexpr (requires {
                      ucs_config_parser_fill_opts(values, &from,
                                                  UCS_DEFAULT_ENV_PREFIX, 0);
                  }) {
        return ucs_config_parser_fill_opts(
            values, &from, UCS_DEFAULT_ENV_PREFIX, ignore_errors);
    } else {
        return ucs_config_parser_fill_opts(values, from.table,
                                           UCS_DEFAULT_ENV_PREFIX, from.prefix,
                                           ignore_errors);
    }
}

/** Register the table with UCX and parse it. Called once, at load.
 *  @return false for a value that cannot be parsed, which was logged. */
[[nodiscard]] bool init_config();

/** UCX_GAUDI_MEMORY_TYPE, behind @ref init_config and before @ref config. */
const char *memory_type_at_load();

/** Parse the variables of a table, so that UCX does not warn about them. Values
 *  that cannot be parsed are left for when it parses them itself. */
void mark_variables_used(ucs_config_global_list_entry_t &table);

/** The values, from the first call on. One that cannot be parsed, which was
 *  logged, has its default. Any thread. */
const global_config &config();

/** Whether all values could be parsed: else there are no cards. */
bool is_config_valid();

/** As UCX_GAUDI_ENGINE and UCX_GAUDI_CARD_KIND name what was chosen. */
const char *name_of_engine();
const char *name_of_card_kind();

/** Whether a bandwidth that UCX has parsed is "auto". */
bool is_auto_bandwidth(double bandwidth);

} // namespace gaudi::base
