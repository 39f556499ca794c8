/**
 * Picks and loads the driver library, as UCX_GAUDI_DRIVER says.
 */
#pragma once

#include "hlthunk_shim/driver.h"

#include <string>

namespace gaudi::base {

/**
 * The driver of this process, loaded at the first call.
 *
 * @return nullptr when there is none; why was logged at the first call: at
 * debug level when nobody asked for a particular one, else as an error.
 */
const shim::driver *driver();

/** Why there is none, for those who ask for Gaudi memory; empty when the log
 *  has it. */
std::string why_no_driver();

} // namespace gaudi::base
