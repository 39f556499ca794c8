/**
 * Memory domain of component gaudi_copy: allocation, registration, detection.
 *
 * Everything it hands out lives in the process-wide device table; the domain is
 * one user of that table. Any thread.
 */
#pragma once

#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
extern uct_component_t uct_gaudi_copy_component;
}

namespace gaudi::copy {

/** Add the component to UCX's list. Called once, at load. */
void register_component();

} // namespace gaudi::copy
