/**
 * A lock for sections that mostly are short and uncontended: one atomic
 * exchange to take it, a store to let it go. That is less than half of what
 * std::mutex costs, and much of what a short copy costs in all.
 *
 * Whoever finds it taken spins for a moment, then yields, then sleeps, so that
 * a section which happens to take long costs others no more than a delay. Not
 * fair, not recursive. Any thread may unlock it, that of a forked child, too.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace gaudi::util {

class brief_lock {
public:
    brief_lock()                              = default;
    brief_lock(const brief_lock &)            = delete;
    brief_lock &operator=(const brief_lock &) = delete;

    void lock()
    {
        while (!try_lock()) {
            wait_while_taken();
        }
    }

    [[nodiscard]] bool try_lock()
    {
        return !taken_.exchange(true, std::memory_order_acquire);
    }

    void unlock() { taken_.store(false, std::memory_order_release); }

private:
    /* Looks at the lock before yielding, and before sleeping. */
    static constexpr unsigned spins  = 64;
    static constexpr unsigned yields = 256;
    static constexpr std::chrono::microseconds nap{50};

    void wait_while_taken() const
    {
        for (unsigned looks = 0; taken_.load(std::memory_order_relaxed);
             ++looks) {
            if (looks >= yields) {
                std::this_thread::sleep_for(nap);
            } else if (looks >= spins) {
                std::this_thread::yield();
            }
        }
    }

    std::atomic<bool> taken_{false};
};

} // namespace gaudi::util
