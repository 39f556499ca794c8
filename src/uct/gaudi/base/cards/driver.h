/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The driver library, as UCX_GAUDI_DRIVER says, and the box that it shows.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/report/report.h"

#include <cstdint>
#include <string>

namespace gaudi::base {

/** The driver of this process, loaded at the first call.
 *  @return nullptr when there is none; why was logged at the first call: at
 *  debug level when nobody asked for a particular one, else as an error. */
const shim::driver *driver();

/** Why there is none, for those who ask for Gaudi memory; empty when the log
 *  has it. */
std::string why_no_driver();

/** Why the first call of @ref driver found none although one was asked for, or
 *  a card is there; empty: neither, or it did. */
const shim::problem &driver_problem();

/** Names the box of cards that this process is in: the same number in all
 *  processes of one running system whose cards may reach each other. Any
 *  thread; the first call loads the driver library. */
uint64_t box_identity();

} // namespace gaudi::base
