/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which processes this one can reach, and telling users why not: UCP goes
 * another way without a word, which may be a hundred times slower.
 *
 * Any thread.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"

#include <string>

namespace gaudi::ipc {

/** @return Why this process cannot reach one at this address, for people;
 *  empty when it can, as far as addresses tell. */
std::string why_unreachable(const machine_address &peer);

/**
 * Whether we could connect: the kernel may forbid what addresses promise. The
 * peer may be stopped: it is not asked.
 *
 * Each reason is told once, with the first process that it keeps out of reach:
 * at warning level where something worse comes of it than a slower way.
 *
 * @return As @ref remote_process::open.
 */
[[nodiscard]] ucs_status_t probe(const machine_address &machine,
                                 const process_id &process);

} // namespace gaudi::ipc
