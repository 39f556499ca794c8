/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Is the running UCX one that this module was built for?
 *
 * Private structures differ between minor releases, and can differ between
 * commits and builds of one. The loader goes by the release, which it asks UCX
 * for, and by the slots of its tables (slots.def); the module itself looks at
 * these and at the structures.
 */
#pragma once

namespace gaudi::base {

/** The version of UCX whose headers this module was built with. */
const char *ucx_headers_version();

/** Compare the layouts. On a mismatch one warning is logged, and the module
 * must not register anything. */
bool ucx_matches();

} // namespace gaudi::base
