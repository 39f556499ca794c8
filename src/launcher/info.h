/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `ucx-gaudi info`: what is there, what is missing, how to mend it, and the two
 * ways to write that.
 */
#pragma once

#include "hlthunk_shim/discovery/card_info.h"
#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/discovery/routes.h"
#include "hlthunk_shim/ports/links.h"
#include "launcher/holders.h"
#include "launcher/installation.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

enum class card_state {
    free,
    ours,   /**< a process of this user has it */
    busy,   /**< somebody else has it */
    reset,  /**< its driver resets it: it is free soon */
    broken, /**< its driver has given it up */
    unknown /**< the driver library cannot tell, and nobody is seen with it */
};

/** A link of a card as sysfs shows it. */
struct port_link {
    unsigned port   = 0; /**< the card's number of it */
    unsigned number = 0; /**< verbs' number */
    bool is_up      = false;
    std::string state; /**< of the link, as in "Polling"; empty: not known */
    gaudi::shim::port_end end; /**< as the map has it */
};

struct card : gaudi::shim::card_info {
    /** As in UCX_GAUDI_DEVICES: the card is called gaudi<name>; none: a
     *  variable hides it from the transports. */
    std::optional<unsigned> name        = {};
    std::optional<uint64_t> free_memory = {};
    card_state state                    = card_state::unknown;
    bool software                       = false; /**< none of this machine's */
    bool usable          = true;  /**< by the transports, when it is free */
    bool takes_framework = false; /**< it takes work through SynapseAI alone */
    std::vector<holder> held_by = {};
    /** Its ports, and where they lead; the map's name, or why there is none. */
    std::vector<port_link> links = {};
    std::string port_map         = {};
    std::string no_map           = {};

    /** The transports would take it. */
    [[nodiscard]] bool is_free() const
    {
        return usable &&
               ((state == card_state::free) || (state == card_state::unknown));
    }
};

/** Pairs of cards, by their names, that have one way to each other's memory for
 *  one reason. */
struct pair_group {
    std::vector<std::pair<unsigned, unsigned>> pairs;
    std::optional<gaudi::shim::wire> way; /**< none: the settings allow none */
    std::string why; /**< it is there, or what is wanted more is not */

    [[nodiscard]] const char *name() const
    {
        return way.has_value() ? name_of(*way) : "none";
    }
};

struct report {
    std::string driver_setting; /**< UCX_GAUDI_DRIVER */
    std::string driver_file;    /**< empty: none is loaded */
    std::string sys;            /**< root of the sysfs that shows the cards;
                                     empty: none does */
    std::vector<card> cards;
    std::string no_ports; /**< why the transports can use none */
    std::vector<pair_group> pairs;
    found_ucx ucx;
    std::string module;                 /**< for that UCX; empty: none fits */
    std::vector<ucx_release> installed; /**< releases that have one */
    std::string way;                    /**< by which it gets into programs */
    std::string way_state;              /**< "active", "not active", "broken" */
    std::filesystem::path way_place;
    problems missing;
    bool usable = true; /**< the transports would work, with at least one card
                             that is free (or unknown) */
};

/**
 * Look at everything, in the environment of this process.
 *
 * Loads UCX and the driver library into the process; neither can be unloaded.
 *
 * @param program  Whose UCX is meant; "": that of any.
 */
report make_report(const installation &files, const machine &where = {},
                   const std::string &program = "");

/** For people: the cards, the ways between them, what was found, and problems
 *  each with what to do. */
std::string to_text(const report &found);

/** For programs: an object with the same facts, sizes in bytes, and null for
 *  what is not known.
 *  @throws std::bad_alloc. */
std::string to_json(const report &found);

/** Write to stdout. @return The code, or another one when that fails, which is
 *  told. */
int print(const std::string &text, int code);

/* --- parts of it -----------------------------------------------------------*/

/** Add the cards of the box, in the order of their device files, who has them,
 *  and what is wrong with them, cause by cause. Opens control nodes only. */
void add_cards(const gaudi::shim::driver &driver, const machine &where,
               report &all);

/** Add the ways between the cards that are there, as the settings have them. */
void add_pairs(report &all);

/** Add the ports of the cards that are there, and where they lead. Opens
 * control nodes only. */
void add_links(const gaudi::shim::driver &driver, report &all);

/**
 * Who has a card that works.
 *
 * @param taken  What the driver says; none: it cannot tell.
 * @param seen   Processes that were seen with the card open.
 * @param user   Whose processes are "ours".
 */
card_state find_state(std::optional<bool> taken,
                      const std::vector<holder> &seen, uid_t user);

/**
 * The UCX that programs get, and the module for it. What UCX's configuration
 * files set is in the environment from then on, where the rest reads it.
 *
 * @param all  Gets both.
 * @return Why the module cannot be used.
 */
problems look_at_ucx(const installation &files, report &all,
                     const std::string &program = "");

/**
 * The driver library as the module would load it.
 *
 * @param all  Gets what is wrong, or why there is no card.
 * @return None when the module would not load it.
 */
std::unique_ptr<gaudi::shim::driver>
load_driver(const installation &files, const machine &where, report &all);

/** As "96.0GiB"; "-" for what is not known. */
std::string to_size(const std::optional<uint64_t> &bytes);

} // namespace launcher
