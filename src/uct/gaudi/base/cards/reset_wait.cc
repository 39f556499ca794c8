#include "uct/gaudi/base/cards/reset_wait.h"

#include <algorithm>
#include <cmath>

namespace gaudi::base {

namespace {

constexpr double longest_seconds = 3600;
/* Short beside a reset, and an open that fails costs the driver little. */
constexpr std::chrono::milliseconds interval{20};

} // namespace

reset_wait::reset_wait(double seconds)
    : limit_(std::chrono::duration_cast<clock::duration>(
          std::chrono::duration<double>(
              std::fmin(std::fmax(seconds, 0), longest_seconds))))
{}

reset_wait::clock::duration reset_wait::next_pause(clock::time_point now)
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

void reset_wait::over()
{
    used_ = used_ && in_vain_;
}

} // namespace gaudi::base
