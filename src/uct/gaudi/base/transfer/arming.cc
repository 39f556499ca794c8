#include "uct/gaudi/base/transfer/arming.h"

#include <algorithm>

namespace gaudi::base {

namespace {

/* Have the end of a job signalled that makes room on a card: if none of ours is
 * there, another interface has filled it. False when there is room. */
bool arm_for_room(wakeup_event &event, const channel &to)
{
    const auto queues = to.dma_queues();
    if (std::any_of(queues.begin(), queues.end(), [](const auto &queue) {
            return queue->outstanding() > 0;
        })) {
        return true;
    }
    shim::card &driver     = to.owner().driver();
    const shim::ticket job = driver.blocking_ticket();
    if (job == shim::ticket::none) {
        return false;
    }
    event.signal_after(driver, job);
    return true;
}

} // namespace

bool arm_for_jobs(wakeup_event &event, const channel_set &channels,
                  dispatcher &dispatcher)
{
    bool armed = true;
    for (const auto &each : channels) {
        for (const auto &queue : each->dma_queues()) {
            if (queue->outstanding() == 0) {
                continue;
            }
            const shim::ticket job = queue->oldest_ticket();
            if (job == shim::ticket::none) {
                return false; /* it has ended meanwhile */
            }
            event.signal_after(each->owner().driver(), job);
        }
        for (work_queue &queue : each->queues()) {
            armed &=
                ucs_list_is_empty(&queue.waiting) || arm_for_room(event, *each);
        }
    }
    const work_queue *blocked = dispatcher.blocked_onward();
    return armed &&
           ((blocked == nullptr) || arm_for_room(event, *blocked->home));
}

} // namespace gaudi::base
