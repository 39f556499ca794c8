/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting costs nothing, and ends when the job does. */
#include "gtest/emu/fixture.h"

#include "common/process_state.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr uint64_t second_us = 1'000'000;

/* What this process, all threads of it, has used. */
struct usage {
    static usage now()
    {
        timespec time{};
        rusage all{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        getrusage(RUSAGE_SELF, &all);
        return {static_cast<uint64_t>(time.tv_sec) * second_us +
                    static_cast<uint64_t>(time.tv_nsec) / 1000,
                static_cast<uint64_t>(all.ru_nvcsw)};
    }

    uint64_t cpu_us;
    uint64_t sleeps; /* how often a thread went to sleep */
};

class emu_waiting : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        device = card.allocate_mapped(1);
        /* Engine threads run from now on. */
        const uint64_t seq = card.start(
            {card.copy_chunk(edma0, device, device + 20 * mebi, 20 * mebi)});
        EXPECT_EQ(card.wait(seq), completed);
        EXPECT_TRUE(
            eventually([] { return count_threads("hlthunk-emu") == 1; }));
    }

    uint64_t start()
    {
        return card.start({card.copy_chunk(edma0, device, device + 64, 64)});
    }

    uint64_t device = 0;
};

/* The driver keeps how a job ended until another has its slot. */
TEST_F(emu_waiting, for_a_job_whose_slot_has_another_is_over_at_once)
{
    const wished_faults one("job#1=abort");
    const uint64_t seq = start();
    EXPECT_EQ(card.wait(seq), aborted);
    for (unsigned i = 1; i < gaudi::shim::max_cs_in_flight; ++i) {
        EXPECT_EQ(card.wait(start()), completed);
    }
    EXPECT_EQ(card.wait(seq), aborted);
    EXPECT_EQ(card.wait(start()), completed);
    EXPECT_EQ(card.wait(seq), completed) << "nobody knows better";
}

TEST_F(emu_waiting, costs_no_time_of_the_processor)
{
    card.pause(true);
    std::vector<uint64_t> jobs;
    for (int i = 0; i < 4; ++i) {
        jobs.push_back(start());
    }
    std::vector<std::jthread> waiters;
    const usage before = usage::now();
    for (uint64_t seq : jobs) {
        waiters.emplace_back(
            [this, seq] { EXPECT_EQ(card.wait(seq, second_us), busy); });
    }
    waiters.clear(); /* when they have ended */
    const usage after = usage::now();
    EXPECT_LT(after.cpu_us - before.cpu_us, second_us / 20);
    /* An engine thread that looks for work does so 2000 times in a second. */
    EXPECT_LT(after.sleeps - before.sleeps, 100u);
    RecordProperty("cpu_us", static_cast<int>(after.cpu_us - before.cpu_us));
    card.pause(false);
    for (uint64_t seq : jobs) {
        EXPECT_EQ(card.wait(seq), completed);
    }
}

/* Engines that were at work when the card was paused, in the middle of a copy,
 * go to sleep, too. */
TEST_F(emu_waiting, engines_of_a_card_that_is_paused_at_work_sleep)
{
    constexpr uint32_t half = 24 * mebi;
    const uint64_t seq =
        card.start({card.copy_chunk(edma0, device, device + half, half)});
    EXPECT_EQ(card.wait(seq, 0), busy);
    card.pause(true);
    const usage before = usage::now();
    EXPECT_EQ(card.wait(seq, second_us), busy);
    const usage after = usage::now();
    EXPECT_LT(after.cpu_us - before.cpu_us, second_us / 20);
    EXPECT_LT(after.sleeps - before.sleeps, 100u);
    card.pause(false);
    EXPECT_EQ(card.wait(seq), completed);
}

TEST_F(emu_waiting, ends_for_every_thread_with_its_own_job)
{
    for (int round = 0; round < 10; ++round) {
        card.pause(true);
        std::vector<std::jthread> waiters;
        std::vector<std::atomic<pid_t>> ids(6);
        for (auto &id : ids) {
            const uint64_t seq = start();
            waiters.emplace_back([this, seq, &id] {
                id = gettid();
                EXPECT_EQ(card.wait(seq), completed);
            });
        }
        EXPECT_TRUE(eventually([&] {
            return std::all_of(ids.begin(), ids.end(), [](const auto &id) {
                return (id != 0) && is_asleep(id);
            });
        }));
        const uint64_t meanwhile = start();
        card.pause(false);
        waiters.clear(); /* when they have ended */
        EXPECT_EQ(card.wait(meanwhile), completed);
    }
}

TEST_F(emu_waiting, goes_on_beside_threads_that_submit)
{
    constexpr unsigned rounds = 2000;
    const uint64_t target     = device + mebi;
    std::atomic<uint64_t> newest{start()};
    std::atomic<bool> done{false};
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 3; ++i) {
        waiters.emplace_back([&] {
            while (!done) {
                EXPECT_EQ(card.wait(newest), completed);
            }
        });
    }
    for (unsigned i = 0; i < rounds; ++i) {
        newest = card.start({card.copy_chunk(edma0, target, device,
                                             (i % 10 == 0) ? 200000 : 64)});
        if (i % 100 == 0) {
            card.pause(true);
            newest = start();
            card.pause(false);
        }
    }
    EXPECT_EQ(card.wait(newest), completed);
    done = true;
    waiters.clear(); /* when they have ended */
}

} // namespace
