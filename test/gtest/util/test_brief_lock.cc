/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock of short sections. */
#include "util/locks.h"

#include "common/process_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace gaudi::test;
using gaudi::util::brief_lock;

namespace {

TEST(brief_lock, lets_one_thread_in_at_a_time)
{
    constexpr unsigned threads = 4;
    constexpr unsigned rounds  = 20000;
    gaudi::util::brief_lock lock;
    unsigned entered = 0; /* no atomic: the lock is what protects it */
    std::vector<std::thread> all;

    for (unsigned i = 0; i < threads; ++i) {
        all.emplace_back([&] {
            for (unsigned round = 0; round < rounds; ++round) {
                const std::lock_guard<gaudi::util::brief_lock> guard(lock);
                ++entered;
            }
        });
    }
    for (std::thread &one : all) {
        one.join();
    }
    EXPECT_EQ(entered, threads * rounds);
}

TEST(brief_lock, is_not_taken_twice)
{
    gaudi::util::brief_lock lock;
    ASSERT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TEST(brief_lock, is_slept_on_when_it_stays_taken)
{
    gaudi::util::brief_lock lock;
    std::atomic<pid_t> waiter{0};
    std::atomic<bool> inside{false};
    lock.lock();
    std::thread other([&] {
        waiter = gettid();
        const std::lock_guard<gaudi::util::brief_lock> guard(lock);
        inside = true;
    });
    EXPECT_TRUE(eventually([&] { return (waiter != 0) && is_asleep(waiter); }));
    EXPECT_FALSE(inside);
    lock.unlock();
    other.join();
    EXPECT_TRUE(inside);
}

} // namespace
