/**
 * Sees what the application asks of the driver library.
 *
 * The functions of each loaded libhl-thunk.so that open and close cards, and
 * give out and take back device memory, are patched in place, so that callers
 * through dlsym are seen, too. Nothing of the library's names is exported.
 * Where a function cannot be patched, the relocations of all libraries are,
 * which does not reach callers through dlsym.
 */
#pragma once

namespace gaudi::base {

/**
 * Begin to see: the library that the process has loaded already, if there is
 * one; that which this module uses, when it is loaded, whose table is made to
 * lead to the original functions, so that what we do ourselves is never seen;
 * and others when cards are opened. Called once, at load.
 */
void init_driver_hooks();

} // namespace gaudi::base
