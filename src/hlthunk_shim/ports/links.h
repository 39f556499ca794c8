/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which ports a card has, and where they lead. The kernel's driver of the ports
 * makes a verbs device hbl_N for each card, N as in /dev/accel/accelN
 * (HabanaAI/perftest and HCL look for it so). Takes no card. Any thread.
 */
#pragma once

#include "hlthunk_shim/abi/hlthunk.h"
#include "hlthunk_shim/abi/ports.h"
#include "hlthunk_shim/ports/port_maps.h"

#include <cstdint>
#include <string>

namespace gaudi::shim {

/** What is known of a card's place in its box. */
struct card_ports {
    unsigned module_id = 0;
    uint64_t enabled   = 0; /**< by the card's numbers */
    port_map map;
    std::string no_map; /**< not empty: why there is no map */
};

/** Ask a card, by what hlthunk_get_hw_ip_info has told. */
card_ports find_ports(const hlthunk_hw_ip_info &info);

/** Whether sysfs shows a verbs device for a card.
 *  @param sys     Root of the sysfs that shows the cards.
 *  @param number  N of /dev/accel/accelN. */
bool has_verbs_device(const std::string &sys, unsigned number);

/** Its name. */
std::string verbs_device(unsigned number);

/** The number that verbs have for a port of the card: its place among those
 * that are enabled, from 1 on (hbl_ib_dev_init, hbl_main.c of the vendor's
 * driver of ports; HCL's map_ib_ports).
 *  @return 0 for one that is not. */
[[nodiscard]] unsigned verbs_port(uint64_t enabled, unsigned port);

} // namespace gaudi::shim
