/**
 * The cards of the box, through their control nodes: takes no card.
 */
#pragma once

#include "hlthunk_shim/hlthunk/library.h"

#include <functional>
#include <string>

namespace gaudi::shim {

/**
 * Visit every card, in the order that gives cards their indices.
 *
 * @param lib    Usable library.
 * @param visit  Called with the number of the device node, the open control
 *               node, which is closed afterwards, and the bus id.
 * @return 0, or the -errno of a control node that is there and cannot be used.
 */
int visit_cards(const library &lib,
                const std::function<void(int node, int fd,
                                         const std::string &bus_id)> &visit);

} // namespace gaudi::shim
