/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/wiring.h"

#include "hlthunk_emulator/settings.h"

#include <bit>

namespace gaudi::emu {

static const shim::box_map &wiring()
{
    return *shim::find_box_map(get_settings().kind->server_type);
}

port_masks ports_of(unsigned card)
{
    port_masks masks{};
    for (unsigned port = 0; port < ports_of_card; ++port) {
        const uint32_t bit = 1u << port;
        masks.enabled |= wiring().is_wired(card, port) ? bit : 0;
        masks.external |= wiring().end_of(card, port).is_card ? 0 : bit;
    }
    masks.external &= masks.enabled;
    return masks;
}

std::optional<port_end> peer_of(port_end own)
{
    const shim::port_end there = wiring().end_of(own.card, own.port);
    if (!there.is_card || (there.module_id >= get_settings().devices)) {
        return std::nullopt;
    }
    return port_end{there.module_id, there.port};
}

unsigned verbs_number(port_end own)
{
    const uint32_t enabled = ports_of(own.card).enabled;
    return static_cast<unsigned>(
        std::popcount(enabled & ((2u << own.port) - 1)));
}

std::optional<unsigned> port_of_verbs_number(unsigned card, unsigned number)
{
    const uint32_t enabled = ports_of(card).enabled;
    for (unsigned port = 0; port < ports_of_card; ++port) {
        if ((((enabled >> port) & 1) != 0) &&
            (verbs_number({card, port}) == number)) {
            return port;
        }
    }
    return std::nullopt;
}

} // namespace gaudi::emu
