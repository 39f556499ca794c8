/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device memory that the application got from the driver library itself.
 *
 * A registry of the process knows what the hooks have seen: allocations and
 * mappings, by the open card they were made on, whether UCX uses that card or
 * not. Mappings are in the memory map, and lead to their card as long as that
 * is open here. What the application has on a card that it closes goes with it:
 * of that cards/card_events.h tells.
 *
 * Threads: any, behind one mutex, which is held across small allocations and
 * the lock of the memory map, no driver call and no UCM event, and which
 * nothing that UCM calls takes.
 */
#pragma once

#include "hlthunk_shim/discovery/open_nodes.h"
#include "uct/gaudi/base/memory/memory.h"

#include <memory>

namespace gaudi::base {

/** A mapping that the application made, of the size that it allocated. Never
 *  unmapped by us. */
struct application_memory final : device_memory {
    shim::node_identity node;              /**< its card, open */
    int fd = -1;                           /**< through which it was mapped */
    std::unique_ptr<device_backing> whole; /**< once its card is known */
};

/* What the hooks of the driver report, see driver_hooks.cc; each on the thread
 * that made the call, and after it unless said otherwise. */
namespace application {

/** Whether all that is done through the library that this module uses is
 *  reported, by whatever code. */
void expect_all(bool reported);

void allocated(int fd, uint64_t handle, uint64_t size);

/** Before memory is freed, whose handle can be another's as soon as that is
 *  done. @return Its size, for @ref allocated when the driver refuses; 0: it is
 *  not known. */
[[nodiscard]] uint64_t freeing(int fd, uint64_t handle);

void mapped(int fd, uint64_t handle, uint64_t va);

/** Before an address is unmapped. @return What to give to @ref unmapped;
 *  nullptr when it is not known. */
[[nodiscard]] application_memory *unmapping(int fd, uint64_t va);

/** @param done  The driver has done so. */
void unmapped(application_memory &memory, bool done);

} // namespace application

} // namespace gaudi::base
