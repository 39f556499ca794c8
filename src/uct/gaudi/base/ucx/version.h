/**
 * Is the running UCX the one that this module was built for?
 *
 * Private structures differ between releases, so a module in the wrong process
 * must not register anything.
 */
#pragma once

namespace gaudi::base {

/** Compare, once. On a mismatch one warning is logged. The version call is in
 *  libucp, which a UCT-only program does not load; the libucp beside the
 *  running libuct is asked then, as both come from one package. */
bool ucx_version_matches();

} // namespace gaudi::base
