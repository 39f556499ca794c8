/**
 * `ucx-gaudi info`: what is there, what is missing, how to mend it.
 */
#pragma once

#include "launcher/installation.h"
#include "launcher/machine.h"

#include <string>

namespace launcher {

struct report {
    std::string text;
    bool usable; /**< the transports would work, with at least one card */
};

/**
 * Look at everything, in the environment of this process.
 *
 * Loads UCX and the driver library into the process; neither can be unloaded.
 */
report make_report(const installation &files, const machine &where = {});

} // namespace launcher
