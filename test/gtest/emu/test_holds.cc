/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs that are held: their bytes are there, and they have not ended. */
#include "hlthunk_emulator/queue_manager.h"
#include "hlthunk_shim/hlthunk/lin_dma.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

using namespace gaudi;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr auto for_ever      = clock_type::time_point::max();
constexpr uint64_t long_time = 60'000'000; /* microseconds */

class emu_holds : public ::testing::Test {
protected:
    void SetUp() override
    {
        const shim::lin_dma packet =
            shim::make_lin_dma(data_va + 64, data_va, 64);
        std::memcpy(data + 256, &packet, sizeof(packet));
    }

    /* Submit a copy by host queue 0 while the engines stand still. */
    uint64_t start(uint64_t buffer_offset = 256)
    {
        hl_cs_chunk chunk{};
        chunk.cb_handle      = data_va + buffer_offset;
        chunk.cb_size        = sizeof(shim::lin_dma);
        chunk.queue_index    = shim::gaudi2_queue_pdma0;
        chunk.cs_chunk_flags = shim::chunk_flag_user_cb;
        hlthunk_cs_in in{};
        in.chunks_execute     = &chunk;
        in.num_chunks_execute = 1;
        uint64_t seq          = 0;
        EXPECT_EQ(queues.submit(lock, in, seq), 0);
        return seq;
    }

    /* Submit one that is held, and move its bytes. */
    uint64_t start_held(clock_type::time_point until,
                        uint64_t buffer_offset = 256)
    {
        queues.pause(true);
        const uint64_t seq = start(buffer_offset);
        queues.hold(seq, until);
        queues.pause(false);
        while (queues.run_slice(lock)) {}
        return seq;
    }

    int wait(uint64_t seq, uint64_t timeout_us, uint32_t expected)
    {
        uint32_t status = 99;
        const int ret   = queues.wait(lock, seq, timeout_us, status);
        EXPECT_EQ(status, expected);
        return ret;
    }

    alignas(4096) char data[4096]{};
    util::brief_lock mutex;
    emu::card_lock lock{mutex};
    emu::hbm memory;
    emu::mmu table{memory};
    uint64_t data_va = table.map_host(data, sizeof(data));
    hlthunk_emu_counters counters{};
    emu::completed_jobs completed;
    emu::queue_manager queues{table, counters, completed, "test"};
};

TEST_F(emu_holds, a_held_job_is_busy_although_its_bytes_are_there)
{
    data[0]            = 'x';
    const uint64_t seq = start_held(for_ever);
    EXPECT_EQ(data[64], 'x');
    EXPECT_EQ(wait(seq, 0, shim::cs_busy), 0);
    EXPECT_EQ(wait(seq, 1000, shim::cs_busy), 0);
    EXPECT_FALSE(completed.has(seq));
}

TEST_F(emu_holds, a_hold_ends_at_its_time)
{
    const auto until   = clock_type::now() + 50ms;
    const uint64_t seq = start_held(until);
    EXPECT_EQ(wait(seq, long_time, shim::cs_completed), 0);
    EXPECT_GE(clock_type::now(), until);
    EXPECT_TRUE(completed.has(seq));
}

TEST_F(emu_holds, a_poll_sees_that_the_time_has_come)
{
    const uint64_t seq = start_held(clock_type::now());
    EXPECT_EQ(wait(seq, 0, shim::cs_completed), 0);
}

TEST_F(emu_holds, of_several_the_latest_counts)
{
    const uint64_t seq = start_held(clock_type::now());
    queues.hold(seq, for_ever);
    queues.hold(seq, clock_type::now());
    EXPECT_EQ(wait(seq, 0, shim::cs_busy), 0);
}

TEST_F(emu_holds, other_jobs_go_on)
{
    const uint64_t held = start_held(for_ever);
    EXPECT_EQ(wait(start(), 0, shim::cs_completed), 0);
    EXPECT_EQ(wait(held, 0, shim::cs_busy), 0);
}

TEST_F(emu_holds, an_aborted_job_is_not_held)
{
    std::memset(data + 512, 0xff, sizeof(shim::lin_dma));
    const uint64_t seq = start_held(for_ever, 512);
    EXPECT_EQ(wait(seq, 0, shim::cs_aborted), -EIO);
}

TEST_F(emu_holds, who_sleeps_learns_of_a_hold_that_is_made_later)
{
    queues.pause(true);
    const uint64_t seq = start();
    std::thread waiter([this, seq] {
        emu::card_lock own(mutex);
        uint32_t status = 99;
        EXPECT_EQ(queues.wait(own, seq, long_time, status), 0);
        EXPECT_EQ(status, shim::cs_completed);
    });
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    queues.hold(seq, clock_type::now() + 20ms);
    queues.pause(false);
    while (queues.run_slice(lock)) {}
    lock.unlock();
    waiter.join();
    lock.lock();
}

TEST_F(emu_holds, a_held_job_keeps_its_slot)
{
    const auto until    = clock_type::now() + 50ms;
    const uint64_t held = start_held(until);
    for (uint64_t i = 1; i < shim::max_cs_in_flight; ++i) {
        start();
    }
    EXPECT_EQ(start(), held + shim::max_cs_in_flight);
    EXPECT_GE(clock_type::now(), until) << "the slot was not waited for";
}

TEST_F(emu_holds, stopping_ends_the_wait_for_a_held_job)
{
    const uint64_t seq = start_held(for_ever);
    std::thread waiter([this, seq] {
        emu::card_lock own(mutex);
        uint32_t status = 99;
        EXPECT_EQ(queues.wait(own, seq, long_time, status), -EIO);
        EXPECT_EQ(status, shim::cs_aborted);
    });
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    queues.stop(lock);
    lock.unlock();
    waiter.join();
    lock.lock();
}

} // namespace
