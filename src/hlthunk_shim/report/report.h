/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The cards of this machine, the ways between them, and what is wrong with
 * them: the module's answer to `ucx-gaudi info`. Opens control nodes only. Any
 * thread.
 */
#pragma once

#include "hlthunk_shim/discovery/card_info.h"
#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/discovery/routes.h"
#include "hlthunk_shim/ports/links.h"
#include "hlthunk_shim/report/holders.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gaudi::shim {

/** Where the kernel shows the machine. Tests make other places. */
struct machine {
    std::string dev  = "/dev";
    std::string proc = "/proc";
    std::string sys  = "/sys";
};

/** Something that stands in the way, as users are told of it. */
struct problem {
    std::string what; /**< is missing or wrong; one line */
    std::string fix;  /**< what to do about it; one line */
};

using problems = std::vector<problem>;

/** What to do about a missing emulator, which Debian has in its own package. */
inline constexpr char install_emulator[] =
    "install the package hl-thunk-emulator, or install ucx-gaudi again";

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
    port_end end;      /**< as the map has it */
};

struct reported_card : card_info {
    /** As in UCX_GAUDI_DEVICES: the card is called gaudi<name>; none: a
     *  variable hides it from the transports. */
    std::optional<unsigned> name        = {};
    std::optional<uint64_t> free_memory = {};
    card_state state                    = card_state::unknown;
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
    std::optional<wire> way; /**< none: the settings allow none */
    std::string why;         /**< it is there, or what is wanted more is not */

    [[nodiscard]] const char *name() const
    {
        return way.has_value() ? name_of(*way) : "none";
    }
};

struct report {
    std::string driver_setting; /**< UCX_GAUDI_DRIVER */
    std::string driver_file;    /**< empty: none is loaded */
    std::string engine;         /**< UCX_GAUDI_ENGINE */
    std::string card_kind;      /**< UCX_GAUDI_CARD_KIND */
    bool software = false;      /**< the cards are none of this machine's */
    std::string sys;            /**< root of the sysfs that shows the cards;
                                     empty: none does */
    std::vector<reported_card> cards;
    std::string no_ports; /**< why the transports can use none */
    std::vector<pair_group> pairs;
    problems missing;
    bool usable = false; /**< the transports would work, with at least one card
                              that is free (or unknown) */
};

/** Have each library of the driver named before it is loaded, since it may
 * crash or hang. Before any thread loads one. */
void tell_before_loading(void (*tell)(const char *path));

/** Add all that a driver's cards tell.
 *  @param routes  UCX_GAUDI_IPC_ROUTES. */
void add_box(const driver &of, const std::string &routes, report &all,
             const machine &where = {});

/** Its cards, and what is wrong with them. */
void add_cards(const driver &of, const machine &where, report &all);

/** The ports of the cards that are there, and where they lead. */
void add_links(const driver &of, report &all);

/** The ways between the cards. @return Whether the setting can be read. */
bool add_pairs(const std::string &routes, report &all);

/**
 * Who has a card that works.
 *
 * @param taken  What the driver says; none: it cannot tell.
 * @param seen   Processes that were seen with the card open.
 * @param user   Whose processes are "ours".
 */
card_state find_state(std::optional<bool> taken,
                      const std::vector<holder> &seen, uid_t user);

/** Whether a device file is there and does not let this user in. */
bool is_closed(const std::string &node);

/** One object in one line, sizes in bytes, null for what is not known.
 *  @throws std::bad_alloc. */
std::string to_json(const report &all);

} // namespace gaudi::shim
