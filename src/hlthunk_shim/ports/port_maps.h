/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which port of which card is at the other end of a port: what kinds of boxes
 * have, and what a file says instead. Nothing that can be read from a box tells
 * it. Opens no card. Any thread.
 */
#pragma once

#include "hlthunk_shim/ports/box_maps.h"

#include <array>
#include <string>
#include <vector>

namespace gaudi::shim {

/** A link between two cards: a port of each. */
struct port_pair {
    unsigned own;
    unsigned peer;
};

struct port_map {
    std::string name; /**< of the kind of box, or where it was read from */
    std::vector<std::array<port_end, ports_of_card>> cards; /**< by module id */

    /** Ascending by the first card's ports; none for a card that it has not. */
    [[nodiscard]] std::vector<port_pair> between(unsigned own,
                                                 unsigned peer) const;
};

/** Names a file in HCL's format that says how ports are connected: an object
 *  with an array HCL_NICS of objects, one for each card, with CARD_LOCATION and
 *  an array NICS of objects, one for each of 24 ports, with REMOTE_CARD (-1 and
 *  -2: none), REMOTE_NIC and REMOTE_SUB_NIC (not used). */
inline constexpr char port_map_variable[] = "HCL_PORT_MAPPING_CONFIG";

/**
 * Find the map of a box.
 *
 * @param server_type  As hlthunk_hw_ip_info has it.
 * @param file         Value of @ref port_map_variable; empty: it is not set.
 * @param map_p        Filled on success only.
 * @return Why there is none; empty: there is.
 */
std::string find_port_map(unsigned server_type, const std::string &file,
                          port_map &map_p);

/** Read a map from its text. @return What is wrong; empty: nothing. */
std::string parse_port_map(const std::string &json, port_map &map_p);

/** Value of @ref port_map_variable. */
std::string port_map_file();

} // namespace gaudi::shim
