/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs that are not finished: the pause hook, the limit, closing. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr uint32_t limit = gaudi::shim::max_cs_in_flight;

class emu_in_flight : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        device = card.allocate_mapped(1);
        fill_pattern(data, sizeof(data), 1);
        host = card.map_host(data, sizeof(data));
    }

    uint64_t start(uint32_t i)
    {
        return card.start({card.copy_chunk(pdma0, device + i * 64, host, 64)});
    }

    char data[64];
    uint64_t device = 0;
    uint64_t host   = 0;
};

TEST_F(emu_in_flight, jobs_stay_busy_while_the_card_is_paused)
{
    card.pause(true);
    const uint64_t seq = start(0);
    for (uint64_t timeout_us : {0u, 1u, 1000u}) {
        EXPECT_EQ(card.wait(seq, timeout_us), busy);
    }
    EXPECT_EQ(card.counters().jobs, 1u);
    EXPECT_EQ(card.counters().host_to_device_bytes, 0u);
    card.pause(false);
    EXPECT_EQ(card.wait(seq), completed);
    EXPECT_EQ(card.counters().host_to_device_bytes, 64u);
}

TEST_F(emu_in_flight, a_waiter_sleeps_through_the_pause)
{
    card.pause(true);
    const uint64_t seq = start(0);
    const pid_t waiter = gettid();
    std::thread resumer([&] {
        EXPECT_TRUE(eventually([&] { return is_asleep(waiter); }));
        card.pause(false);
    });
    EXPECT_EQ(card.wait(seq), completed);
    resumer.join();
}

/* In one batch, of which each thread waits for another job. */
TEST_F(emu_in_flight, a_wait_ends_for_every_thread_with_its_own_job)
{
    card.pause(true);
    std::vector<std::jthread> waiters;
    std::vector<std::atomic<pid_t>> ids(6);
    for (auto &id : ids) {
        waiters.emplace_back([this, seq = start(0), &id] {
            id = gettid();
            EXPECT_EQ(card.wait(seq), completed);
        });
    }
    EXPECT_TRUE(eventually([&] {
        return std::ranges::all_of(
            ids, [](const auto &id) { return (id != 0) && is_asleep(id); });
    }));
    card.pause(false);
}

TEST_F(emu_in_flight, the_next_submission_blocks_until_one_has_ended)
{
    card.pause(true);
    uint64_t first = 0;
    for (uint32_t i = 0; i < limit; ++i) {
        const uint64_t begun = start(i);
        first                = (i == 0) ? begun : first;
    }
    EXPECT_EQ(card.wait(first, 0), busy);
    const hl_cs_chunk chunk = card.copy_chunk(pdma0, device, host, 64);
    std::atomic<pid_t> submitter{0};
    std::atomic<bool> returned{false};
    uint64_t seq = 0;
    std::thread thread([&] {
        submitter = gettid();
        EXPECT_EQ(card.submit({chunk}, seq), 0);
        returned = true;
    });
    EXPECT_TRUE(eventually([&] {
        return returned || ((submitter != 0) && is_blocked(submitter));
    }));
    EXPECT_FALSE(returned);
    EXPECT_EQ(card.counters().jobs, limit);
    card.pause(false);
    thread.join();
    EXPECT_EQ(card.wait(seq), completed);
    EXPECT_EQ(card.counters().jobs, limit + 1);
}

TEST_F(emu_in_flight, closing_a_card_ends_its_jobs_for_good)
{
    card.pause(true);
    start(0);
    close_card(card);
    const std::vector<char> copy(data, data + sizeof(data));

    own_card again;
    const uint64_t va = again.allocate_mapped(1);
    EXPECT_EQ(again.copy(edma0, va, va + 64, 64), completed);
    EXPECT_EQ(again.counters().jobs, 1u);
    EXPECT_EQ(std::vector<char>(data, data + sizeof(data)), copy);
}

/* A copy of host memory that does not end. @return Its job. */
uint64_t start_paused(own_card &card)
{
    static char data[64];
    const uint64_t device = card.allocate_mapped(1);
    const uint64_t host   = card.map_host(data, sizeof(data));
    card.pause(true);
    return card.start({card.copy_chunk(pdma0, device, host, sizeof(data))});
}

/* In a child: what goes wrong here is a crash. */
GAUDI_CHILD(closes_a_card_while_a_thread_waits)
{
    own_card card;
    const uint64_t seq = start_paused(card);

    std::atomic<pid_t> waiter{0};
    std::atomic<int> result{1};
    std::thread thread([&] {
        waiter = gettid();
        result = card.wait(seq).result;
    });
    const bool slept =
        eventually([&] { return (waiter != 0) && is_blocked(waiter); });
    const int closed = hl().hlthunk_close(card.fd());
    thread.join();
    card.release();
    GAUDI_CHILD_REQUIRE(slept);
    GAUDI_CHILD_REQUIRE(closed == 0);
    GAUDI_CHILD_REQUIRE(result < 0);
    return 0;
}

/* While others wait for its jobs, which is when the lock is let go. */
GAUDI_CHILD(closes_a_card_in_many_threads)
{
    for (int i = 0; i < 50; ++i) {
        own_card card;
        const uint64_t seq = start_paused(card);
        std::vector<std::jthread> threads;
        std::array<std::atomic<pid_t>, 4> waiters{};
        for (auto &waiter : waiters) {
            threads.emplace_back([&] {
                waiter = gettid();
                (void)card.wait(seq);
            });
        }
        GAUDI_CHILD_REQUIRE(eventually([&] {
            return std::ranges::all_of(waiters, [](const auto &waiter) {
                return (waiter != 0) && is_blocked(waiter);
            });
        }));
        std::atomic<int> closed{0};
        for (int each = 0; each < 4; ++each) {
            threads.emplace_back(
                [&] { closed += (hl().hlthunk_close(card.fd()) == 0); });
        }
        threads.clear();
        card.release();
        GAUDI_CHILD_REQUIRE(closed >= 1);
    }
    return 0;
}

TEST(emu_closing, of_one_descriptor_by_several_threads_ends_no_process)
{
    const child_result result = run_child("closes_a_card_in_many_threads");
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 0) << result.error;
}

TEST(emu_closing, wakes_who_waits_for_a_job)
{
    for (int i = 0; i < 5; ++i) {
        const child_result result =
            run_child("closes_a_card_while_a_thread_waits");
        EXPECT_EQ(result.signal, 0);
        EXPECT_EQ(result.exit_code, 0) << result.error;
    }
}

} // namespace
