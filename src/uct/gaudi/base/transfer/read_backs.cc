#include "uct/gaudi/base/transfer/read_backs.h"

#include <algorithm>
#include <utility>

namespace gaudi::base {

/* Pulled from the list, with all that it covers, unless there is no room.
 * @return 0 or -errno. */
int read_backs::submit_first()
{
    dma_job &last       = first();
    channel &by         = *last.queue->home;
    const size_t length = std::min(last.length, size_t{channel::scratch_bytes});
    work_queue &queue =
        by.queue_for(shim::dma_direction::device_to_host, length);
    uint64_t id;
    const int error = queue.dma->submit(
        by.scratch_va(), last.dst + last.length - length, length, &last, id);
    if (error == -EAGAIN) {
        return error;
    }
    (void)pull();
    if (error != 0) {
        return error;
    }
    last.queue        = &queue;
    last.length       = length;
    last.is_read_back = true;
    queue.in_flight += length;
    ucs_queue_head_t others;
    ucs_queue_head_init(&others);
    while (!is_empty()) {
        dma_job &other = pull();
        if ((other.peer == last.peer) && (other.queue->home == &by)) {
            other.next_free = std::exchange(last.covered, &other);
        } else {
            ucs_queue_push(&others, &other.in_onward);
        }
    }
    ucs_queue_splice(&waiting_, &others);
    return 0;
}

} // namespace gaudi::base
