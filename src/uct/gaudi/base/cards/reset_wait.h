/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How long the opening of cards waits for those that are in reset.
 *
 * One thread at a time. Opens that fail one after the other, as those of
 * several memory domains do, are one occasion: together they wait no longer
 * than one of them may. The next occasion begins when a wait has had success,
 * or when as long again has passed since the time was over. Sleeps not itself.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gaudi::base {

class reset_wait {
public:
    using clock = std::chrono::steady_clock;

    /** @param seconds  Of one occasion; an hour at most. */
    explicit reset_wait(double seconds)
        : limit_(std::chrono::duration_cast<clock::duration>(
              std::chrono::duration<double>(
                  std::fmin(std::fmax(seconds, 0), 3600))))
    {}

    /** How long to sleep before cards are tried again; nothing when the time
     *  of this occasion is over. */
    [[nodiscard]] clock::duration next_pause(clock::time_point now)
    {
        if (!used_ || (now - deadline_ > limit_)) {
            used_     = true;
            in_vain_  = false;
            deadline_ = now + limit_;
        }
        if (now >= deadline_) {
            in_vain_ = true;
            return clock::duration::zero();
        }
        return std::min<clock::duration>(interval, deadline_ - now);
    }

    /** Cards were opened. Ends the occasion, unless its time was over: who
     *  opens them once more then does not wait for the same card again. */
    void over() { used_ = used_ && in_vain_; }

private:
    /* Short beside a reset, and an open that fails costs the driver little. */
    static constexpr std::chrono::milliseconds interval{20};

    const clock::duration limit_;
    bool used_    = false; /* the other two mean something */
    bool in_vain_ = false; /* the time was over */
    clock::time_point deadline_;
};

} // namespace gaudi::base
