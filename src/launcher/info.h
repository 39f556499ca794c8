/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `ucx-gaudi info`: what the module reports of the cards, what else is there or
 * missing, and the two ways to write that.
 */
#pragma once

#include "launcher/installation.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct cJSON;

namespace launcher {

/** What of a card is looked at here: the rest is in the module's answer. */
struct card {
    std::optional<unsigned> name; /**< as gaudi::shim::reported_card */
    unsigned number = 0;          /**< N of /dev/accel/accelN */
    std::string bus_id;
    std::string state;            /**< as gaudi::shim::card_state has it */
    std::string held_by;          /**< empty: nobody is seen */
    bool is_free         = false; /**< for the transports */
    bool takes_framework = false;
};

struct report {
    /** An object as gaudi::shim::to_json writes it; null: no module answers. */
    std::shared_ptr<cJSON> answer;
    std::string driver_setting;
    std::string driver_file; /**< empty: none is loaded */
    gaudi::shim::driver_options driver_options;
    bool software = false; /**< the cards are none of this machine's */
    std::string sys;       /**< root of the sysfs that shows the cards */
    std::vector<card> cards;
    found_ucx ucx;
    std::string module;                 /**< for that UCX; empty: none fits */
    std::vector<ucx_release> installed; /**< releases that have one */
    std::string way;                    /**< by which it gets into programs */
    std::string way_state;              /**< "active", "not active", "broken" */
    std::filesystem::path way_place;
    problems missing;
    bool usable = false; /**< the transports would work, with at least one card
                              that is free (or unknown) */
};

/**
 * Look at everything, in the environment of this process.
 *
 * Loads UCX into the process, and the module with its driver library into a
 * child.
 *
 * @param program  Whose UCX is meant; "": that of any.
 */
report make_report(const installation &files, const machine &where = {},
                   const std::string &program = "");

/** Find the UCX of a program, and the module for it. @return Why there is
 *  none. */
problems find_module(const installation &files, const std::string &program,
                     report &all);

/** Open the module that was found in this process, and print its answer as the
 *  last line. @return Why it cannot be used; empty: it can. */
std::string ask_module(const report &of);

/** Take over what ask_module has printed. */
void read_answer(const std::string &printed, report &all);

/** For people: the cards, the ways between them, what was found, and problems
 *  each with what to do. */
std::string to_text(const report &found);

/** For programs: an object with the same facts, sizes in bytes, and null for
 *  what is not known.
 *  @param with_holders  Also who has the cards.
 *  @throws std::bad_alloc. */
std::string to_json(const report &found, bool with_holders = true);

/** Write to stdout. @return The code, or another one when that fails, which is
 *  told. */
int print(const std::string &text, int code);

/** As "96.0GiB"; "-" for what is not known. */
std::string to_size(const std::optional<uint64_t> &bytes);

} // namespace launcher
