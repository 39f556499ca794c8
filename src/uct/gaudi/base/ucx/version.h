/**
 * Is the running UCX one that this module was built for?
 *
 * Private structures differ between minor releases, and can differ between
 * builds of one, so a module in the wrong process must not register anything.
 */
#pragma once

#include <string>

namespace gaudi::base {

/** Compare the minor release and the layouts, once. On a mismatch one warning
 *  is logged. The version call is in libucp, which a UCT-only program does not
 *  load; the libucp beside the running libuct is asked then, as both come from
 *  one package. */
bool ucx_matches();

/**
 * Compare the sizes of a libuct's objects, and a structure that the process's
 * libucs fills, with the headers that this module was built with.
 *
 * @param libuct  Handle of the library.
 * @return What differs first, and how; empty: nothing.
 */
std::string find_other_layout(void *libuct);

} // namespace gaudi::base
