/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The UCX memory type that stands for Gaudi memory.
 *
 * UCX has one from 1.21 on. Before that a plugin cannot add one, so a type
 * whose own module is not installed is taken over and renamed to "gaudi".
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** Take a memory type. Called once, at load, after init_config.
 *  @return false when none can be had; the reason is logged. */
bool init_memory_type();

/** The type that was taken. */
ucs_memory_type_t memory_type();

} // namespace gaudi::base
