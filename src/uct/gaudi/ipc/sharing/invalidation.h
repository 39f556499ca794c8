/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Waiting for those who use a key that has ended: memory of it may be given
 * back when they have let go.
 *
 * The caller waits, or leaves a completion in a queue, one per process. Others
 * say in their shared pages what they are using; nobody is asked. Threads: any.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstdint>

namespace gaudi::ipc {

/** Wait until nobody uses a key that has ended.
 *  @param completion  Called once: at once when nobody uses it, else from
 *                     @ref progress_invalidations; with UCS_ERR_TIMED_OUT when
 *                     somebody does not let go for too long. */
void wait_for_users(uint64_t stamp, uct_completion_t *completion);

/** Wait here until nobody uses a key that has ended. It makes no progress,
 * calls nothing of UCX, and needs no lock of its: UCP holds some meanwhile.
 *  @return UCS_ERR_TIMED_OUT when somebody does not let go for too long. Two
 *          processes that wait so for each other's transfers both get it. */
[[nodiscard]] ucs_status_t await_users(uint64_t stamp);

/** Whether somebody uses a key that has ended. Waits for nobody. */
[[nodiscard]] bool has_users(uint64_t stamp);

/** An interface that may be waited with has opened, or closes. Completions that
 *  wait when the last one closes that was there when they began are forgotten:
 *  their memory may have gone. UCP tells memory domains nothing of workers, so
 *  a program that destroys one of several while requests of it are under way
 *  has to wait for these first.
 *  @return An id for the closing, which has to be in the same process. */
uint64_t open_invalidations();
void close_invalidations(uint64_t id);

/** Whether a completion waits for @ref progress_invalidations. No event tells
 *  when others let go, so whoever is to call it must not sleep. */
bool has_invalidations();

/** How long to wait, in seconds. */
void set_invalidation_timeout(double seconds);

/** Call the completions of invalidations that nobody holds up any more, and now
 *  and then forget processes that have ended. Cheap when there is nothing to
 * do. Not from within a completion. @return How many were called.
 */
unsigned progress_invalidations();

} // namespace gaudi::ipc
