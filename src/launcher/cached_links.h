/**
 * Links to an installation, made in the user's cache where it has none that
 * will do. They stay: programs look things up in them as long as they run.
 *
 * The loader gets a name for LD_PRELOAD when its own has a space. A slot is
 * for a UCX that is not where the one of the build was: it is a folder for
 * LD_LIBRARY_PATH: UCX's libraries as links and, in the folder of modules
 * beside them, the loader under another module's name. The installation has
 * one. For another UCX one is made in the user's cache, with links to that
 * UCX's modules, too.
 */
#pragma once

#include "launcher/installation.h"

namespace launcher {

/**
 * Let an installation have the slot for the UCX that was found. Nothing is
 * made yet.
 */
void choose_slot(installation &files, const found_ucx &ucx);

/** Make the chosen slot, if it is not part of the installation. */
problems make_slot(const installation &files);

/** Let an installation have a name of the loader that can be in LD_PRELOAD, if
 *  the cache can have one. Nothing is made yet. */
void choose_preload(installation &files);

/** Make the chosen name, if it is not part of the installation. */
problems make_preload(const installation &files);

} // namespace launcher
