/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The external ports of the cards of this process.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"

#include <string>

#include <netinet/in.h>

namespace gaudi::ipc {

struct way_out {
    base::card *card = nullptr;
    in_addr address{};    /**< of a port */
    double bandwidth = 0; /**< of all, bytes/second: 100 Gbit/s each, 200 of
                               Gaudi3 */
};

/** Where an interface could be reached from other boxes: the first external
 *  port of a card that is up and has an IPv4 address.
 *  @param way_p  Filled on success only. @return Empty, or why there is none.
 */
std::string find_way_out(const base::held_cards &cards, way_out &way_p);

} // namespace gaudi::ipc
