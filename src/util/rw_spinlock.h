/**
 * A reader-writer lock for short table look-ups.
 *
 * Readers are many and never block each other; a writer holds it for a pointer
 * update only. Rule: nothing that may call the driver, the allocator or UCX is
 * called while it is held, because UCM callbacks take it inside the
 * application's own munmap.
 */
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace gaudi::util {

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
