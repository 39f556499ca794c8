/**
 * UCX's idea of where devices are.
 *
 * Distances of devices are UCX's own business, but for the devices that
 * somebody here knows better: one function is asked about every pair. From 1.22
 * on UCX lets nobody answer beside itself: ucs_sys_topo_provider_push replaces
 * all three operations for all devices of the process, and who is pushed cannot
 * ask UCX's own provider. What UCX goes by is told to it then: a card's NUMA
 * node.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <optional>
#include <string>

namespace gaudi::base {

/**
 * Rates the distance between two different devices, both known to UCX.
 *
 * @param by_tree  UCX's own answer, which goes by the place in the tree of PCI
 *                 devices; none: one of the two is not in sysfs.
 * @return None: UCX's answer stands.
 */
using distance_function = std::optional<ucs_sys_dev_distance_t> (*)(
    ucs_sys_device_t first, ucs_sys_device_t second,
    const std::optional<ucs_sys_dev_distance_t> &by_tree);

/** Have a function asked about UCX's answers, in releases that allow it. Called
 *  once, at load, before the first distance is asked for. */
void init_topology(distance_function rate);

/** Number of values that a system device can have. */
inline constexpr size_t system_devices = size_t{1}
                                         << (8 * sizeof(ucs_sys_device_t));

/**
 * Make a device known to UCX.
 *
 * @param bus_id  "dddd:bb:dd.f"
 * @param name    What UCX calls the device in its listings.
 * @param node    Its NUMA node, if known.
 * @return The system device; UCS_SYS_DEVICE_ID_UNKNOWN when UCX keeps no more.
 */
ucs_sys_device_t add_system_device(const std::string &bus_id,
                                   const std::string &name,
                                   std::optional<unsigned> node);

/** Bus id of a system device, "dddd:bb:dd.f". */
std::string bus_id_of(ucs_sys_device_t device);

/** What UCX says of two devices below one host bridge that are farthest from
 *  each other, */
inline constexpr ucs_sys_dev_distance_t below_one_bridge = {
    .latency = 300e-9, .bandwidth = 3500.0 * UCS_MBYTE};

/** and of devices on two sockets, whose only common parent is the machine. */
ucs_sys_dev_distance_t across_sockets();

} // namespace gaudi::base
