/**
 * Distances for cards that sysfs does not show.
 *
 * UCX resolves bus ids under the real /sys and some of its protocols assert
 * that this succeeds, so a card without a sysfs entry (an emulated one, or one
 * hidden from a container) would stop the program.
 */
#pragma once

namespace gaudi::base {

/** Put our method in front of UCX's own. Called once, at load, before the first
 *  distance is asked for. */
void init_topology();

} // namespace gaudi::base
