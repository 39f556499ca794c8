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

#include "hlthunk_shim/hlthunk/library.h"

namespace gaudi::base {

/** Hook a driver library that the process has loaded already, if there is one.
 *  Cheap when there is nothing new. */
void hook_loaded_driver();

/**
 * Hook the library that this module uses, whose table is made to lead to the
 * original functions: what we do ourselves is never seen.
 */
void hook_driver(shim::library &library);

/** Whether all that is done through the library that this module uses is seen,
 *  by whomever. */
[[nodiscard]] bool driver_is_hooked();

} // namespace gaudi::base
