/**
 * Makes `ucx_perftest -m gaudi` work: fills the slot of our memory type in the
 * table of allocators that the program exports.
 */
#pragma once

namespace gaudi::base {

/** Called once, at load, before main; does nothing in other programs. */
void init_perftest();

} // namespace gaudi::base
