/**
 * Has an event come when an engine that sleeps has something to do.
 */
#pragma once

#include "uct/gaudi/base/transfer/dispatcher.h"
#include "uct/gaudi/base/transfer/wakeup.h"

namespace gaudi::base {

/**
 * Have the end of every job signalled that an engine waits for.
 *
 * @return false when there is something to do already, or nothing that could be
 *         signalled although something waits: the caller has to try again.
 * @throws std::system_error as @ref wakeup_event::signal_after.
 */
[[nodiscard]] bool arm_for_jobs(wakeup_event &event,
                                const channel_set &channels,
                                dispatcher &dispatcher);

} // namespace gaudi::base
