/**
 * Is the running UCX one that this module was built for?
 *
 * Private structures differ between minor releases, and can differ between
 * builds of one. The loader goes by the release, which it asks UCX for and
 * finds the module by; the module itself looks at the structures.
 */
#pragma once

#include <string>

namespace gaudi::base {

/** The version of UCX whose headers this module was built with. */
const char *ucx_headers_version();

/** Compare the layouts. On a mismatch one warning is logged, and the module
 * must not register anything. */
bool ucx_matches();

/**
 * Compare the sizes of objects of a libuct and its libucs, and a structure that
 * the process's libucs fills, with the headers that this module was built with.
 *
 * @param libuct  Handle of the library.
 * @return What differs first, and how; empty: nothing.
 */
std::string find_other_layout(void *libuct);

} // namespace gaudi::base
