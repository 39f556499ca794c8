/**
 * Memory domain of component gaudi_ipc: registrations that other processes can
 * use, and what keys of other processes stand for.
 *
 * It allocates nothing and tells no memory types: gaudi_copy does. There in
 * every process of a box with cards, in one that has got none of them, too. Any
 * thread.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/sharing/exports.h"
#include "uct/gaudi/ipc/sharing/remote_key.h"

extern "C" {
extern uct_component_t uct_gaudi_ipc_component;
}

namespace gaudi::ipc {

/** Add the component to UCX's list. Called once, at load. */
void register_component();

} // namespace gaudi::ipc
