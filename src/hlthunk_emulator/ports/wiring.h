/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports of the cards: which there are, and which port of which other card
 * each is wired to. A box has as many cards as its kind is wired for; further
 * cards are another one.
 */
#pragma once

#include "hlthunk_shim/ports/box_maps.h"

#include <cstdint>
#include <optional>

namespace gaudi::emu {

using shim::ports_of_card;

/** Numbers of ports begin with 0, as the hardware has them; verbs count the
 *  enabled ones, from 1 on (hbl_ib_dev_init of the driver's hbl_main.c). */
struct port_end {
    unsigned card;
    unsigned port;

    bool operator==(const port_end &) const = default;
};

/** Masks of a card's ports. External ones lead out of the box, and are down. */
struct port_masks {
    uint32_t enabled;
    uint32_t external;
};

port_masks ports_of(unsigned card);

/** The other end of the wire; none for an external port, or where the box has
 *  no such card. */
std::optional<port_end> peer_of(port_end own);

/** Verbs' number of an enabled port. */
unsigned verbs_number(port_end own);

/** The port that has this number in verbs; none: there is no such. */
std::optional<unsigned> port_of_verbs_number(unsigned card, unsigned number);

} // namespace gaudi::emu
