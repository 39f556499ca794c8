/**
 * What `ucx-gaudi info` has found, and the two ways to write it.
 */
#pragma once

#include "launcher/cards.h"
#include "launcher/installation.h"

#include <filesystem>
#include <string>
#include <vector>

namespace launcher {

/** A way to load the module. */
struct loading_way {
    enum class state { active, inactive, broken, absent };

    const char *name = "";
    state now        = state::absent; /**< absent: the UCX found has it not */
    std::filesystem::path place;      /**< empty if absent */
};

const char *to_string(loading_way::state state);

struct report {
    std::string driver_setting; /**< UCX_GAUDI_DRIVER */
    std::string driver_file;    /**< empty: none is loaded */
    std::vector<card> cards;
    found_ucx ucx;
    std::string module;                 /**< for that UCX; empty: none fits */
    std::vector<ucx_release> installed; /**< releases that have one */
    std::vector<loading_way> ways;
    problems missing;
    bool usable = true; /**< the transports would work, with at least one card
                             that is free (or unknown) */
};

/** For people; each line begins with the same word in every version. */
std::string to_text(const report &found);

/** For programs: an object with the same facts, sizes in bytes, and null for
 *  what is not known.
 *  @throws std::bad_alloc. */
std::string to_json(const report &found);

} // namespace launcher
