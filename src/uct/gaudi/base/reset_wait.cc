#include "uct/gaudi/base/reset_wait.h"

#include <algorithm>
#include <cmath>
#include <thread>

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

bool reset_wait::pause()
{
    const auto now = clock::now();
    if (!used_ || (now - last_ > limit_)) {
        used_     = true;
        deadline_ = now + limit_;
    }
    last_ = now;
    if (now >= deadline_) {
        return false;
    }
    std::this_thread::sleep_for(
        std::min<clock::duration>(interval, deadline_ - now));
    return true;
}

} // namespace gaudi::base
