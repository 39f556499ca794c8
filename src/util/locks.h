/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Locks for short sections on paths where std::mutex would cost too much.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace gaudi::util {

/** Leave the core to others while something is awaited that nobody tells of.
 *  Where threads yielded instead, for long, Linux 6.18 left others and its own
 *  without a core for up to a minute. */
inline void nap()
{
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/**
 * For sections that mostly are uncontended: one atomic exchange to take it, a
 * store to let it go. That is less than half of what std::mutex costs, and much
 * of what a short copy costs in all.
 *
 * Whoever finds it taken spins for a moment, then yields, then sleeps, so that
 * a section which happens to take long costs others no more than a delay. Not
 * fair, not recursive. Any thread may unlock it, that of a forked child, too.
 */
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

    void wait_while_taken() const
    {
        for (unsigned looks = 0; taken_.load(std::memory_order_relaxed);
             ++looks) {
            if (looks >= yields) {
                nap();
            } else if (looks >= spins) {
                std::this_thread::yield();
            }
        }
    }

    std::atomic<bool> taken_{false};
};

/**
 * For readers and writers of tables: readers are many and never block each
 * other, a writer holds it for a pointer update only.
 *
 * Nothing that may call the driver, the allocator or UCX is called while it is
 * held. A writer waits for readers that come without a pause: none holds it for
 * longer than a look-up, and no munmap of the application waits for it.
 */
class rw_spinlock {
public:
    void lock() /* for writing */
    {
        for (unsigned spins = 0;; ++spins) {
            uint32_t free = 0;
            if (state_.compare_exchange_weak(free, writer,
                                             std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
                return;
            }
            relax(spins);
        }
    }

    void unlock() { state_.store(0, std::memory_order_release); }

    void lock_shared()
    {
        for (unsigned spins = 0;; ++spins) {
            uint32_t state = state_.load(std::memory_order_relaxed);
            if ((state != writer) &&
                state_.compare_exchange_weak(state, state + 1,
                                             std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
                return;
            }
            relax(spins);
        }
    }

    void unlock_shared() { state_.fetch_sub(1, std::memory_order_release); }

private:
    static constexpr uint32_t writer = UINT32_MAX;

    static void relax(unsigned spins)
    {
        /* The holder may have lost its core. */
        if (spins % 64 == 63) {
            std::this_thread::yield();
        }
    }

    std::atomic<uint32_t> state_{0}; /* readers, or `writer` */
};

} // namespace gaudi::util
