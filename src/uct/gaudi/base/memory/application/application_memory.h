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

#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/memory/memory.h"

#include <map>
#include <memory>
#include <utility>

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

/** Of an open card: a handle, or a device address. */
using key = std::pair<shim::node_identity, uint64_t>;

struct allocation {
    int fd;
    uint64_t size;
};

using allocation_map = std::map<key, allocation>; /**< by handle */

/** Whether all that is done through the library that this module uses is
 *  reported, by whomever. */
void expect_all(bool reported);

void allocated(int fd, uint64_t handle, uint64_t size);

/** It is about to free memory, whose handle can be another's as soon as that is
 *  done. @return What to give to @ref not_freed. */
[[nodiscard]] allocation_map::node_type freeing(int fd, uint64_t handle);

/** The driver has refused to. */
void not_freed(allocation_map::node_type kept);

void mapped(int fd, uint64_t handle, uint64_t va);

/** It is about to unmap an address. @return What to give to @ref unmapped;
 *  nullptr when it is not known. */
[[nodiscard]] std::unique_ptr<application_memory> unmapping(int fd,
                                                            uint64_t va);

/** @param done  The driver has done so. */
void unmapped(std::unique_ptr<application_memory> memory, bool done);

} // namespace application

} // namespace gaudi::base
