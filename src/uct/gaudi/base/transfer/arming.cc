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
    shim::device &dev  = to.owner().device();
    const uint64_t job = dev.blocking_job();
    if (job == 0) {
        return false;
    }
    event.signal_after(dev, job);
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
            const uint64_t job = queue->oldest_job();
            if (job == 0) {
                return false; /* it has ended meanwhile */
            }
            event.signal_after(each->owner().device(), job);
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
