/**
 * Sees what the application asks of the driver library.
 *
 * The functions of each loaded libhl-thunk.so that open and close cards, and
 * give out and take back device memory, are patched in place, so that callers
 * through dlsym are seen, too. Nothing of the library's names is exported.
 * Where a function cannot be patched, the relocations of all libraries are,
 * which does not reach callers through dlsym.
 *
 * UCX's own module for Gaudi memory is not the application: a card that it
 * opens for itself is left to it, and it is lent none.
 */
#pragma once

#include "uct/gaudi/base/cards/card_events.h"

namespace gaudi::base {

/** Hook the library that the process has loaded by now, if there is one. Cheap
 *  when there is nothing new. Called at load. */
void hook_loaded_driver();

/** Hooks others: the library that this module uses, when it is loaded, whose
 *  table is made to lead to the original functions, so that what we do
 * ourselves is never seen; and what is loaded when cards are opened. */
card_events &driver_hook_events();

} // namespace gaudi::base
