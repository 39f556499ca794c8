/**
 * Slots for a UCX that is not where the one of the build was.
 *
 * A slot is a folder for LD_LIBRARY_PATH: UCX's libraries as links and, in the
 * folder of modules beside them, the loader under another module's name. The
 * installation has one. For another UCX one is made in the user's cache, with
 * links to that UCX's modules, too.
 */
#pragma once

#include "launcher/installation.h"

namespace launcher {

/**
 * Let an installation have the slot for the UCX that was found. Nothing is
 * made yet.
 */
void choose_slot(installation &files, const found_ucx &ucx);

/**
 * Make the chosen slot, if it is not part of the installation. It stays:
 * programs look things up in it as long as they run.
 */
problems make_slot(const installation &files);

} // namespace launcher
