/**
 * `ucx-gaudi info`: what is there, what is missing, how to mend it.
 */
#pragma once

#include "launcher/report.h"

namespace launcher {

/**
 * Look at everything, in the environment of this process.
 *
 * Loads UCX and the driver library into the process; neither can be unloaded.
 */
report make_report(const installation &files, const machine &where = {});

} // namespace launcher
