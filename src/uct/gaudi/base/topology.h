/**
 * Distances for cards that sysfs does not show.
 *
 * UCX resolves bus ids under the real /sys and some of its protocols assert
 * that this succeeds, so a card without a sysfs entry (an emulated one, or one
 * hidden from a container) would stop the program.
 */
#pragma once

#include "uct/gaudi/base/ucx.h"

#include <string>

namespace gaudi::base {

/** Put our method in front of UCX's own. Called once, at load, before the first
 *  distance is asked for. */
void init_topology();

/**
 * Make a card known to UCX's topology.
 *
 * @param bus_id  "dddd:bb:dd.f"
 * @param name    What UCX calls the device in its listings.
 * @return The system device; UCS_SYS_DEVICE_ID_UNKNOWN when UCX keeps no more.
 */
ucs_sys_device_t add_system_device(const std::string &bus_id,
                                   const std::string &name);

} // namespace gaudi::base
