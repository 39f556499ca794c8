/**
 * Trials: does the module that should fit a UCX load with it, and SynapseAI?
 */
#pragma once

#include "launcher/installation.h"

#include <string>

namespace launcher {

/**
 * Open the module for the UCX that was found, in a child process, since it
 * cannot be unloaded and may be damaged in any way.
 *
 * @param ucx  Loaded into this process, with a release that has a module.
 * @return What keeps the module from being used: it cannot be opened (damaged,
 *         made for a newer system), or it registers nothing with this UCX.
 */
problems try_module(const installation &files, const found_ucx &ucx);

/**
 * Load SynapseAI as the transports would, in a child process.
 *
 * @return Why it cannot be used; empty: it can.
 */
std::string try_synapse();

} // namespace launcher
