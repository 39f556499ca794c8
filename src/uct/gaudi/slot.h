/**
 * Slot loading: UCX's loader opens this module under another module's name.
 *
 * The loader takes the first file of a name that it finds. Where a link with
 * that name leads to this module, the other module is displaced, and brought in
 * here. Called by the loader, which has a lock around it.
 */
#pragma once

namespace gaudi::base {

/**
 * Load the modules that links to this one displace.
 *
 * What the loader would have found without the links is loaded. As in the
 * loader, a module that cannot be loaded is a debug line and no failure.
 */
void load_displaced_modules();

} // namespace gaudi::base
