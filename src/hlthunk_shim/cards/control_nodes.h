/**
 * The cards of the box, through their control nodes: takes no card.
 */
#pragma once

#include "hlthunk_shim/driver.h"

#include <functional>
#include <string>

namespace gaudi::shim {

/**
 * Visit every card, in the order that gives cards their indices.
 *
 * @param of     With a usable library.
 * @param visit  Called with the number of the device file, the descriptor of
 * the control node, which is closed afterwards, and the bus id.
 * @return 0, or the -errno of a control node that is there and cannot be used.
 */
int visit_cards(const driver &of,
                const std::function<void(unsigned number, int fd,
                                         const std::string &bus_id)> &visit);

} // namespace gaudi::shim
