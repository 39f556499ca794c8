/* SPDX-License-Identifier: BSD-3-Clause */
/** What the module answers `ucx-gaudi info`: its settings, as UCX has read
 *  them, and the cards that they lead to. */
#pragma once

#include "hlthunk_shim/report/report.h"

namespace gaudi::base {

/** Loads the driver library, as the first memory domain would. */
shim::report make_report();

} // namespace gaudi::base
