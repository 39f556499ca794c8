/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Where UCX believes cards to be: distances of cards to each other and to NICs.
 *
 * UCX goes by the place in the tree of PCI devices. It resolves bus ids under
 * the real /sys, and some of its protocols assert that this succeeds, so a card
 * without an entry there (an emulated one, or one hidden from a container)
 * would stop the program. And it rates devices of one socket that hang on
 * different root complexes as if they were on different sockets. Both are
 * mended here, by the NUMA nodes of the two; distances of other devices stay
 * UCX's.
 *
 * From 1.22 on UCX lets nobody answer beside itself:
 * ucs_sys_topo_provider_push replaces all three operations for all devices of
 * the process, and who is pushed cannot ask UCX's own provider. What UCX goes
 * by is told to it then: a card's NUMA node.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <optional>
#include <string>

namespace gaudi::base {

/** Answer for cards from now on, in releases that allow it. Called once, at
 *  load, before the first distance is asked for. */
void init_topology();

/**
 * Make a card known to UCX's topology.
 *
 * @param bus_id  "dddd:bb:dd.f"
 * @param name    What UCX calls the device in its listings.
 * @param node    Its NUMA node, if known.
 * @return The system device; UCS_SYS_DEVICE_ID_UNKNOWN when UCX keeps no more.
 */
ucs_sys_device_t add_system_device(const std::string &bus_id,
                                   const std::string &name,
                                   std::optional<unsigned> node);

/**
 * Rate the distance between a card and another device by their NUMA nodes, as
 * far as known.
 *
 * @param by_tree  UCX's own answer, which goes by the place in the tree of PCI
 *                 devices; none: one of the two is not in sysfs.
 * @param far      UCX's rate for devices on two sockets.
 */
ucs_sys_dev_distance_t
rate_distance(const std::optional<ucs_sys_dev_distance_t> &by_tree,
              std::optional<unsigned> first, std::optional<unsigned> second,
              const ucs_sys_dev_distance_t &far);

} // namespace gaudi::base
