/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/port_queue.h"

#include "util/locks.h"

#include <algorithm>
#include <chrono>

namespace gaudi::base {

/* Who has ended acknowledges nothing any more. */
unsigned port_queue::look(shim::dma_completion *completions, unsigned max)
{
    const unsigned found = over_->poll(completions, max);
    if (found > 0) {
        idle_polls_ = 0;
    } else if ((++idle_polls_ % polls_before_look == 0) && (peer_ != nullptr) &&
               peer_->is_over()) {
        over_->close();
    }
    return found;
}

unsigned port_queue::poll(shim::dma_completion *completions, unsigned max)
{
    if (ended_.empty()) {
        return look(completions, max);
    }
    const auto count =
        std::min<ptrdiff_t>(max, static_cast<ptrdiff_t>(ended_.size()));
    std::copy_n(ended_.begin(), count, completions);
    ended_.erase(ended_.begin(), ended_.begin() + count);
    return static_cast<unsigned>(count);
}

int port_queue::wait_all(uint64_t timeout_us)
{
    using clock         = std::chrono::steady_clock;
    const auto deadline = clock::now() + std::chrono::microseconds(timeout_us);
    while (over_->outstanding() > 0) {
        shim::dma_completion next;
        if (look(&next, 1) > 0) {
            ended_.push_back(next);
        } else if (clock::now() >= deadline) {
            return -EAGAIN;
        } else {
            util::nap();
        }
    }
    return 0;
}

} // namespace gaudi::base
