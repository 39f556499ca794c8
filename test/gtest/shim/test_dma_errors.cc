/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that fail. */
#include "gtest/shim/fixture.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/resource.h>

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

constexpr uint64_t unmapped = 0x1001900000000000;

class shim_dma_errors : public shim_test {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(shim_test::SetUp());
        memory = std::make_unique<device_memory>(*dev, mebi);
        queue  = make_queue(dma_direction::device_to_device);
    }

    void TearDown() override
    {
        queue.reset();
        memory.reset();
        shim_test::TearDown();
    }

    int copy_well(dma_queue &on)
    {
        return copy(on, memory->va() + 4096, memory->va(), 4096);
    }

    std::unique_ptr<device_memory> memory;
    std::unique_ptr<dma_queue> queue;
};

TEST_F(shim_dma_errors, an_aborted_copy_says_so_once)
{
    int cookie        = 0;
    const uint64_t id = start(*queue, unmapped, memory->va(), 64, &cookie);
    EXPECT_EQ(queue->wait(id, patience_us), -EIO);
    EXPECT_EQ(queue->wait(id, patience_us), -EIO) << "until it is collected";

    dma_completion more{};
    EXPECT_EQ(collect_one(*queue, &cookie), -EIO);
    EXPECT_EQ(queue->poll(&more, 1), 0u);
    EXPECT_EQ(queue->outstanding(), 0u);
    EXPECT_EQ(counters().jobs_aborted, 1u);
}

TEST_F(shim_dma_errors, a_copy_that_leaves_its_mapping_fails)
{
    const uint64_t end = memory->va() + device_page();
    EXPECT_EQ(copy(*queue, end - 60000, memory->va(), 60000), 0);
    EXPECT_EQ(copy(*queue, end - 59999, memory->va(), 60000), -EIO);
    EXPECT_EQ(counters().jobs_aborted, 1u);
}

TEST_F(shim_dma_errors, a_failure_is_kept_for_an_owner_who_asks_late)
{
    /* The driver forgets how a job ended when 64 newer ones exist. */
    auto other = make_queue(dma_direction::device_to_device);
    int cookie = 0;
    start(*queue, unmapped, memory->va(), 64, &cookie);
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(copy_well(*other), 0);
    }
    EXPECT_EQ(collect_one(*queue, &cookie), -EIO);
    EXPECT_EQ(copy_well(*queue), 0);
}

/* --- answers that the emulator never gives -------------------------------- */

int driver_answer = 0;

class shim_dma_driver_errors : public card_test {
protected:
    void SetUp() override
    {
        lib.hlthunk_wait_for_cs = [](int fd, uint64_t seq, uint64_t timeout_us,
                                     uint32_t *status) {
            const int real =
                hl().hlthunk_wait_for_cs(fd, seq, timeout_us, status);
            return (driver_answer != 0) ? driver_answer : real;
        };
        lib.hlthunk_command_submission = [](int fd, hlthunk_cs_in *in,
                                            hlthunk_cs_out *out) {
            return (driver_answer != 0)
                       ? driver_answer
                       : hl().hlthunk_command_submission(fd, in, out);
        };
        driver_answer = 0;
        dev           = open_card(lib);
        queue         = make_queue(dma_direction::device_to_device);
        memory        = std::make_unique<device_memory>(*dev, 1);
    }

    void TearDown() override
    {
        driver_answer = 0;
        memory.reset();
        queue.reset();
        dev.reset(); /* before its library */
    }

    int submit(uint64_t &id)
    {
        return queue->submit(memory->va(), memory->va() + 64, 64, nullptr, id);
    }

    uint64_t start_one()
    {
        return start(*queue, memory->va(), memory->va() + 64, 64);
    }

    library lib{emulator_path()};
    std::unique_ptr<dma_queue> queue;
    std::unique_ptr<device_memory> memory;
};

/* Afterwards the driver answers for nothing any more. */
TEST_F(shim_dma_driver_errors, that_others_see_first_are_kept_for_the_owner)
{
    (void)start_one();
    lib.hlthunk_get_device_status_info = [](int) {
        return static_cast<int>(device_in_reset);
    };
    driver_answer = -ETIMEDOUT;
    EXPECT_EQ(dev->query(queue->oldest_ticket(), 0), -ETIMEDOUT);
    EXPECT_TRUE(dev->is_lost());
    driver_answer = 0;
    EXPECT_EQ(collect_one(*queue), -ETIMEDOUT);
    EXPECT_EQ(warnings.take().size(), 1u);
}

/* No card answers -ENODEV but one that was reset or removed. */
TEST_F(shim_dma_driver_errors, at_the_wait_become_the_status)
{
    uint64_t next = 0;
    for (const int error : {-EIO, -ENODEV}) {
        const uint64_t id = start_one();
        driver_answer     = error;
        EXPECT_EQ(queue->wait(id, patience_us), error);
        EXPECT_EQ(collect_one(*queue), error);
        driver_answer = 0;
        EXPECT_EQ(dev->is_lost(), error == -ENODEV);
    }
    EXPECT_EQ(warnings.take().size(), 1u);
    EXPECT_EQ(submit(next), -ENODEV);
}

/* As while a card is in reset, when the library tries again and again. */
TEST_F(shim_dma_driver_errors, no_core_is_taken_by_who_waits_for_a_submission)
{
    static std::atomic<bool> entered;
    static std::atomic<bool> may_go;
    entered = may_go               = false;
    lib.hlthunk_command_submission = [](int fd, hlthunk_cs_in *in,
                                        hlthunk_cs_out *out) {
        entered = true;
        may_go.wait(false);
        return hl().hlthunk_command_submission(fd, in, out);
    };
    auto other = make_queue(dma_direction::device_to_device);
    std::jthread first([&] { (void)start_one(); });
    while (!entered) {
        std::this_thread::yield();
    }
    rusage used{};
    std::jthread second([&] {
        EXPECT_EQ(copy(*other, memory->va(), memory->va() + 128, 64), 0);
        getrusage(RUSAGE_THREAD, &used);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    may_go = true;
    may_go.notify_all();
    second.join();
    EXPECT_LT(used.ru_nvcsw, 100) << "it wakes up for nothing";
    first.join();
    EXPECT_EQ(collect_one(*queue), 0);
}

TEST_F(shim_dma_driver_errors, at_the_submission_start_nothing)
{
    uint64_t id = 77;
    for (int i = 0; i < 200; ++i) { /* more than there are places */
        driver_answer = -EBUSY;
        ASSERT_EQ(submit(id), -EBUSY);
        ASSERT_EQ(queue->outstanding(), 0u);
        driver_answer = 0;
        ASSERT_EQ(copy(*queue, memory->va(), memory->va() + 64, 64), 0);
    }
    driver_answer = -ENODEV;
    EXPECT_EQ(submit(id), -ENODEV);
    driver_answer = 0;
    EXPECT_TRUE(dev->is_lost());
    EXPECT_EQ(warnings.take().size(), 1u);
}

/* Its memory must not be given back meanwhile. */
TEST_F(shim_dma_driver_errors, that_are_no_answer_end_no_job)
{
    const uint64_t id = start_one();
    driver_answer     = -EINVAL;
    dma_completion done{};
    EXPECT_EQ(queue->wait(id, 1000), -EAGAIN);
    EXPECT_EQ(queue->poll(&done, 1), 0u);
    EXPECT_EQ(queue->outstanding(), 1u);
    driver_answer = 0;
    EXPECT_EQ(queue->wait(id, patience_us), 0);
    EXPECT_EQ(collect_one(*queue), 0);
    EXPECT_EQ(warnings.take().size(), 1u);
    EXPECT_FALSE(dev->is_lost());
}

TEST_F(shim_dma_driver_errors, for_good_lose_the_card)
{
    const uint64_t id = start_one();
    driver_answer     = -EINVAL;
    EXPECT_EQ(queue->wait(id, 30'000'000), -ENODEV);
    driver_answer = 0;
    EXPECT_TRUE(dev->is_lost());
    EXPECT_EQ(warnings.take().size(), 2u) << "of no answer, and of the loss";
}

} // namespace
