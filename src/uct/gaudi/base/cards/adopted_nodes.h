/**
 * The open nodes of the application that this process uses, and those that it
 * inherited from the process that it was forked from, whose descriptors are no
 * use here.
 *
 * The one thing of the cards that a forked child keeps. Changed under the lock
 * of the card table, by one process at a time.
 */
#pragma once

#include "hlthunk_shim/cards/open_nodes.h"

namespace gaudi::base {

/** Whether a process that this one was forked from used the node. */
[[nodiscard]] bool is_inherited(const shim::node_identity &node);

/** This process uses it; */
void remember_adopted(const shim::node_identity &node);
/** and does so no more, or it is another one that is called the same. */
void forget_adopted(const shim::node_identity &node);

} // namespace gaudi::base
