/* SPDX-License-Identifier: BSD-3-Clause */
/** The routes between cards of different processes, by name. Any thread. */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gaudi::shim {

/** What bytes go over from one card to another's memory. */
enum class wire {
    ports, /**< the cards' own links */
    host   /**< host memory that both cards map: every pair has it */
};

/** As in UCX_GAUDI_IPC_ROUTES. */
const char *name_of(wire of);

/** The first wanted to the last one. */
inline constexpr char default_routes[] = "ports,host";

/**
 * Read UCX_GAUDI_IPC_ROUTES.
 *
 * @param text     Names of wires separated by commas, the first wanted first,
 *                 each at most once, at least one.
 * @param order_p  Filled on success only.
 * @return What is wrong, to follow the variable and its value; empty: nothing.
 */
std::string parse_routes(std::string_view text, std::vector<wire> &order_p);

} // namespace gaudi::shim
