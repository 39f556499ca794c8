/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues with copies in flight: limits, order, waiting, going away. */
#include "gtest/shim/fixture.h"

#include "common/process_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

void *cookie_of(uint64_t number)
{
    return reinterpret_cast<void *>(number);
}

class shim_dma_flow : public shim_test {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(shim_test::SetUp());
        memory = std::make_unique<device_memory>(*dev, 2 * mebi);
    }

    void TearDown() override
    {
        memory.reset();
        shim_test::TearDown();
    }

    /* Start a small copy with this cookie. */
    int start(dma_queue &queue, uint64_t cookie, uint64_t length = 64)
    {
        return queue.submit(memory->va() + mebi, memory->va(), length,
                            cookie_of(cookie), last_id);
    }

    /* Fill until refused. @return Copies that were taken. */
    unsigned fill(dma_queue &queue)
    {
        unsigned count = 0;
        int ret        = 0;
        while ((ret = start(queue, count)) == 0) {
            ++count;
        }
        EXPECT_EQ(ret, -EAGAIN);
        return count;
    }

    /* Collect this many copies: in order, each once, all with one status. */
    void collect(dma_queue &queue, uint64_t first, unsigned count,
                 unsigned portion = 16, int status = 0)
    {
        uint64_t expected = first;
        ASSERT_TRUE(eventually([&] {
            std::vector<dma_completion> done(portion);
            const unsigned got = queue.poll(done.data(), portion);
            EXPECT_LE(got, portion);
            for (unsigned i = 0; i < got; ++i) {
                EXPECT_EQ(done[i].cookie, cookie_of(expected++));
                EXPECT_EQ(done[i].status, status);
            }
            return expected >= first + count;
        }));
        EXPECT_EQ(expected, first + count);
    }

    /* Submit copies while there is room, and collect them: in order, each once.
     * @param submit  By number. @param status_of  How that copy has to end. */
    template <typename Submit, typename Status>
    static void pump(dma_queue &queue, uint64_t copies, Submit &&submit,
                     Status &&status_of)
    {
        uint64_t submitted = 0;
        uint64_t collected = 0;
        while (collected < copies) {
            while ((submitted < copies) && (submit(submitted) == 0)) {
                ++submitted;
            }
            EXPECT_EQ(queue.outstanding(), submitted - collected);
            dma_completion done[7];
            const unsigned count = queue.poll(done, 1 + submitted % 7);
            for (unsigned i = 0; i < count; ++i) {
                ASSERT_EQ(done[i].cookie, cookie_of(collected));
                ASSERT_EQ(done[i].status, status_of(collected));
                ++collected;
            }
        }
    }
    static int no_error(uint64_t) { return 0; }

    /* Resume the card once this thread sleeps. */
    std::thread resume_when_asleep()
    {
        return std::thread([this, sleeper = gettid()] {
            EXPECT_TRUE(eventually([&] { return is_asleep(sleeper); }));
            pause(false);
        });
    }

    std::unique_ptr<device_memory> memory;
    uint64_t last_id = 0;
};

TEST_F(shim_dma_flow, sixty_four_copies_are_in_flight_at_most)
{
    for (unsigned depth : {64u, 128u, 512u}) {
        auto queue = make_queue(dma_direction::device_to_device, {depth, 0});
        pause(true);
        EXPECT_EQ(fill(*queue), max_cs_in_flight) << depth;
        EXPECT_EQ(queue->outstanding(), max_cs_in_flight);
        dma_completion done{};
        EXPECT_EQ(queue->poll(&done, 1), 0u);
        EXPECT_EQ(start(*queue, 0), -EAGAIN);

        pause(false);
        collect(*queue, 0, max_cs_in_flight);
        EXPECT_EQ(queue->outstanding(), 0u);
        EXPECT_EQ(start(*queue, 1), 0);
        collect(*queue, 1, 1);
    }
}

TEST_F(shim_dma_flow, a_queue_holds_as_many_copies_as_it_is_deep)
{
    auto queue = make_queue(dma_direction::device_to_device, {4, 0});
    pause(true);
    EXPECT_EQ(fill(*queue), 4u);
    pause(false);
    ASSERT_EQ(queue->wait(last_id, patience_us), 0);
    EXPECT_EQ(start(*queue, 0), -EAGAIN) << "ended, but not collected";
    collect(*queue, 0, 1, 1);
    EXPECT_EQ(start(*queue, 4), 0);
    EXPECT_EQ(start(*queue, 5), -EAGAIN);
    collect(*queue, 1, 4);
}

/* No command buffer may be written anew while the card has not read it. */
TEST_F(shim_dma_flow, no_command_buffer_is_written_while_the_card_reads_it)
{
    constexpr uint64_t length = 4096;
    constexpr uint64_t all    = max_cs_in_flight * length;
    device_memory space(*dev, 2 * all);
    host_memory host(*dev, all);
    auto down  = make_queue(dma_direction::host_to_device);
    auto up    = make_queue(dma_direction::device_to_host);
    auto queue = make_queue(dma_direction::device_to_device, {128, 0});
    fill_pattern(host.data(), all, 1);
    for (uint64_t i = 0; i < 17; ++i) { /* not from the first buffer on */
        ASSERT_EQ(copy(*down, space.va(), host.va(), all), 0);
    }
    std::memset(host.data(), 0, all);

    pause(true);
    uint64_t at = 0;
    while (queue->submit(space.va() + all + at, space.va() + at, length,
                         nullptr, last_id) == 0) {
        at += length;
    }
    EXPECT_EQ(at, all);
    pause(false);
    EXPECT_EQ(queue->wait_all(patience_us), 0);
    ASSERT_EQ(copy(*up, host.va(), space.va() + all, all), 0);
    EXPECT_TRUE(has_pattern(host.data(), all, 1));
}

TEST_F(shim_dma_flow, queues_share_the_limit_of_the_card)
{
    auto one = make_queue(dma_direction::device_to_device);
    auto two = make_queue(dma_direction::device_to_device);
    pause(true);
    for (uint64_t i = 0; i < 40; ++i) {
        ASSERT_EQ(start(*one, i), 0);
    }
    EXPECT_EQ(fill(*two), max_cs_in_flight - 40);
    EXPECT_EQ(start(*one, 40), -EAGAIN);
    pause(false);
    collect(*two, 0, max_cs_in_flight - 40);
    collect(*one, 0, 40);
    EXPECT_EQ(start(*one, 40), 0);
    EXPECT_EQ(start(*two, 24), 0);
    collect(*one, 40, 1);
    collect(*two, 24, 1);
}

TEST_F(shim_dma_flow, a_queue_that_nobody_polls_does_not_block_another)
{
    auto idle = make_queue(dma_direction::device_to_device);
    auto busy = make_queue(dma_direction::device_to_device);
    for (uint64_t i = 0; i < max_cs_in_flight; ++i) {
        ASSERT_EQ(start(*idle, i), 0);
    }
    for (uint64_t i = 0; i < 300; ++i) {
        ASSERT_TRUE(eventually([&] { return start(*busy, i) == 0; }));
        collect(*busy, i, 1);
    }
    collect(*idle, 0, max_cs_in_flight);
}

TEST_F(shim_dma_flow, a_full_card_names_the_job_in_the_way)
{
    auto one = make_queue(dma_direction::device_to_device);
    auto two = make_queue(dma_direction::device_to_device);
    EXPECT_EQ(dev->blocking_ticket(), ticket::none)
        << "nothing was ever submitted";
    pause(true);
    for (uint64_t i = 0; i < max_cs_in_flight; ++i) {
        EXPECT_EQ(dev->blocking_ticket(), ticket::none) << i;
        ASSERT_EQ(start((i < 10) ? *one : *two, i), 0);
    }
    ASSERT_EQ(start(*two, 64), -EAGAIN);
    const ticket job = dev->blocking_ticket();
    EXPECT_EQ(job, one->oldest_ticket()) << "the oldest, whoever has it";
    EXPECT_EQ(dev->query(job, 1000), 0);

    std::thread resumer = resume_when_asleep();
    EXPECT_EQ(dev->query(job, patience_us), 1);
    resumer.join();
    EXPECT_EQ(start(*two, 64), 0) << "nobody has collected anything";
    collect(*one, 0, 10);
    collect(*two, 10, 55);
    EXPECT_EQ(dev->blocking_ticket(), ticket::none);
}

/* --- completions ---------------------------------------------------------- */

TEST_F(shim_dma_flow, completions_come_once_and_in_order)
{
    auto queue = make_queue(dma_direction::device_to_device);
    pump(
        *queue, 2000,
        [&](uint64_t i) { /* Lengths of every kind, nothing included. */
                          return start(*queue, i, i * 7919 % 100000 * (i % 3));
        },
        no_error);
    dma_completion done{};
    EXPECT_EQ(queue->poll(&done, 1), 0u);
    EXPECT_EQ(queue->outstanding(), 0u);
}

/* --- waiting -------------------------------------------------------------- */

TEST_F(shim_dma_flow, waiting_gives_up_at_its_time)
{
    auto queue = make_queue(dma_direction::device_to_device);
    pause(true);
    ASSERT_EQ(start(*queue, 0), 0);
    for (uint64_t timeout_us : {0u, 1u, 1000u, 20000u}) {
        EXPECT_EQ(queue->wait(last_id, timeout_us), -EAGAIN);
    }
    EXPECT_EQ(queue->wait_all(1000), -EAGAIN);
    pause(false);
    EXPECT_EQ(queue->wait(last_id, patience_us), 0);
    EXPECT_EQ(queue->wait(last_id, 0), 0) << "again";
    EXPECT_EQ(queue->wait_all(0), 0);
    EXPECT_EQ(queue->outstanding(), 1u) << "not yet collected";
    collect(*queue, 0, 1);
}

TEST_F(shim_dma_flow, any_thread_may_ask_about_jobs_while_others_submit)
{
    /* Every third copy fails. That has to reach its owner although the driver
     * forgets it 64 submissions later, and although others have asked. */
    constexpr unsigned submitters  = 3;
    constexpr uint64_t copies      = 3000;
    std::atomic<ticket> newest     = ticket::none;
    std::atomic<unsigned> finished = 0;
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < submitters; ++id) {
        threads.emplace_back([&] {
            auto queue         = make_queue(dma_direction::device_to_device);
            const uint64_t bad = 64;
            pump(
                *queue, copies,
                [&](uint64_t i) {
                    uint64_t ignored = 0;
                    const int ret    = queue->submit(
                           memory->va() + mebi, (i % 3 == 2) ? bad : memory->va(),
                           64, cookie_of(i), ignored);
                    newest = std::max(newest.load(), queue->oldest_ticket());
                    return ret;
                },
                [](uint64_t i) { return (i % 3 == 2) ? -EIO : 0; });
            ++finished;
        });
    }
    for (int id = 0; id < 2; ++id) {
        threads.emplace_back([&] {
            uint64_t number = 0;
            while (finished < submitters) {
                /* Young and old ones, such that are long forgotten, too. */
                const auto young   = static_cast<uint64_t>(newest.load());
                const uint64_t seq = young - std::min(young, number++ % 150);
                for (ticket job : {ticket{seq}, dev->blocking_ticket()}) {
                    if (job != ticket::none) {
                        /* Under way, ended, or failed: as it happens. */
                        EXPECT_THAT(dev->query(job, number % 2 * 100),
                                    ::testing::AnyOf(0, 1, -EIO));
                    }
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(counters().jobs, submitters * copies);
    EXPECT_EQ(counters().jobs_aborted, submitters * copies / 3);
}

/* --- going away ----------------------------------------------------------- */

TEST_F(shim_dma_flow, a_queue_waits_for_its_copies_when_it_goes)
{
    auto queue = make_queue(dma_direction::device_to_device);
    pause(true);
    for (uint64_t i = 0; i < 10; ++i) {
        ASSERT_EQ(start(*queue, i), 0);
    }
    std::thread resumer = resume_when_asleep();
    queue.reset();
    resumer.join();
    EXPECT_EQ(counters().device_to_device_bytes, 640u) << "all have run";
    EXPECT_EQ(counters().jobs_aborted, 0u);
    EXPECT_EQ(counters().mappings, 1u) << "its buffers are unmapped";
}

} // namespace
