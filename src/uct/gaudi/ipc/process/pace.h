/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How often something is done that costs a system call or more. Any thread.
 */
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

class pace {
public:
    /** @param interval  From one time to the next, seconds. */
    explicit pace(double interval) : interval_(ucs_time_from_sec(interval)) {}

    /** Whether it is time; if so, the next time is an interval from now. One
     *  thread at most is told. */
    [[nodiscard]] bool is_due()
    {
        const uint64_t now = ucs_get_time();
        uint64_t before    = last_.load(std::memory_order_relaxed);
        return (now - before >= interval_) &&
               last_.compare_exchange_strong(before, now);
    }

private:
    const ucs_time_t interval_;
    std::atomic<uint64_t> last_{0}; /* ucs_time_t */
};

} // namespace gaudi::ipc
