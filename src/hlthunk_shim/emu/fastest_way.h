/**
 * Finds out which of several ways to do the same work is the fastest here.
 *
 * The work is done in parts. Now and then a few parts in a row go each way in
 * turn, and are timed; the others go the way that was the fastest then. Any
 * thread may do parts; two that are timed beside each other may at worst spoil
 * one comparison.
 */
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gaudi::emu {

template <size_t count>
class fastest_way {
public:
    /** One part of the work. */
    struct turn {
        size_t way;
        bool is_timed = false;
        std::chrono::steady_clock::time_point since;
    };

    /** Before a part. @param size  Its length in whatever the work is made of;
     *  short ones are not timed. */
    turn begin(size_t size)
    {
        if (size < timed_size) {
            return {fastest_.load(std::memory_order_relaxed), false, {}};
        }
        const uint32_t place =
            turns_.fetch_add(1, std::memory_order_relaxed) % period;
        if (place == 0) {
            for (auto &cost : cost_) {
                cost.store(UINT64_MAX, std::memory_order_relaxed);
            }
        }
        if (place < timed_turns) {
            return {place % count, true, std::chrono::steady_clock::now()};
        }
        if (place == timed_turns) {
            choose();
        }
        return {fastest_.load(std::memory_order_relaxed), false, {}};
    }

    /** After it. */
    void end(const turn &done, size_t size)
    {
        if (!done.is_timed) {
            return;
        }
        const std::chrono::nanoseconds taken =
            std::chrono::steady_clock::now() - done.since;
        auto &cost = cost_[done.way];
        const uint64_t here =
            static_cast<uint64_t>(taken.count()) * scale / size;
        if (here < cost.load(std::memory_order_relaxed)) {
            cost.store(here, std::memory_order_relaxed);
        }
    }

private:
    static constexpr size_t timed_size    = 256 << 10;
    static constexpr uint64_t scale       = 1 << 20;
    static constexpr uint32_t period      = 512;
    static constexpr uint32_t timed_turns = 4 * count;

    /* By the best time of each: what else runs on the machine makes times
     * longer, never shorter. The way in use has a lead of an eighth, so that
     * chance does not change it. */
    void choose()
    {
        size_t best      = fastest_.load(std::memory_order_relaxed);
        uint64_t to_beat = cost_[best].load(std::memory_order_relaxed);
        to_beat -= to_beat / 8;
        for (size_t way = 0; way < count; ++way) {
            const uint64_t cost = cost_[way].load(std::memory_order_relaxed);
            if (cost < to_beat) {
                best    = way;
                to_beat = cost;
            }
        }
        fastest_.store(best, std::memory_order_relaxed);
    }

    std::atomic<uint32_t> turns_{0};
    std::atomic<size_t> fastest_{0};
    std::atomic<uint64_t> cost_[count]{}; /* nanoseconds of `scale` */
};

} // namespace gaudi::emu
