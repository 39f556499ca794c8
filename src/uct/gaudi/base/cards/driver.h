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

/**
 * Have a function called when the driver library has been loaded, with its
 * table, before anything is called through that. One function; set before
 * @ref driver is called.
 */
void on_driver_loaded(void (*hook)(shim::library &));

/** Why there is none, for those who ask for Gaudi memory; empty when the log
 *  has it. */
std::string why_no_driver();

} // namespace gaudi::base
