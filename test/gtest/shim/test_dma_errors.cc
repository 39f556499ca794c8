/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that fail. */
#include "gtest/shim/fixture.h"

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

TEST_F(shim_dma_errors, the_queue_goes_on_after_an_abort)
{
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(copy(*queue, unmapped, memory->va(), 64), -EIO);
        EXPECT_EQ(copy_well(*queue), 0);
    }
}

TEST_F(shim_dma_errors, an_abort_is_that_copys_only)
{
    uint64_t id = 0;
    int good    = 0;
    int bad     = 0;
    pause(true);
    for (int i = 0; i < 30; ++i) {
        const bool fails = (i % 3 == 1);
        id = start(*queue, fails ? unmapped : memory->va() + 4096, memory->va(),
                   64, fails ? &bad : &good);
    }
    pause(false);
    EXPECT_EQ(queue->wait(id, patience_us), 0);
    dma_completion done[30];
    ASSERT_EQ(queue->poll(done, 30), 30u);
    for (int i = 0; i < 30; ++i) {
        EXPECT_EQ(done[i].cookie, (i % 3 == 1) ? &bad : &good);
        EXPECT_EQ(done[i].status, (i % 3 == 1) ? -EIO : 0);
    }
}

TEST_F(shim_dma_errors, the_wrong_direction_fails)
{
    host_memory host(*dev, 64);
    EXPECT_EQ(copy(*queue, host.va(), memory->va(), 64), -EIO)
        << "an internal engine does not reach host memory";
    auto to_device = make_queue(dma_direction::host_to_device);
    EXPECT_EQ(copy(*to_device, memory->va(),
                   reinterpret_cast<uint64_t>(host.data()), 64),
              -EIO)
        << "a host pointer is no device address";
}

TEST_F(shim_dma_errors, a_failure_in_any_part_fails_the_copy)
{
    /* Two buffers of packets; the mapping ends in the last packet. */
    auto split = make_queue(dma_direction::device_to_device, {64, 1024});
    const uint64_t end = memory->va() + device_page();
    EXPECT_EQ(copy(*split, end - 60000, memory->va(), 60000), 0);
    EXPECT_EQ(copy(*split, end - 59999, memory->va(), 60000), -EIO);
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

class shim_dma_driver_errors : public card_test<device>,
                               public ::testing::WithParamInterface<int> {
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

    uint64_t start_one()
    {
        return start(*queue, memory->va(), memory->va() + 64, 64);
    }

    library lib{emulator_path()};
    std::unique_ptr<dma_queue> queue;
    std::unique_ptr<device_memory> memory;
};

TEST_P(shim_dma_driver_errors, at_the_wait_become_the_status)
{
    const uint64_t id = start_one();
    driver_answer     = GetParam();
    EXPECT_EQ(queue->wait(id, patience_us), GetParam());
    EXPECT_EQ(collect_one(*queue), GetParam());
    driver_answer = 0;
    /* No card answers -ENODEV but one that was reset or removed. */
    const bool lost = (GetParam() == -ENODEV);
    EXPECT_EQ(dev->is_lost(), lost);
    EXPECT_EQ(warnings.take().size(), lost ? 1u : 0u);
    uint64_t next = 0;
    EXPECT_EQ(queue->submit(memory->va(), memory->va() + 64, 64, nullptr, next),
              lost ? -ENODEV : 0);
}

using shim_dma_driver_refusals = shim_dma_driver_errors;
using shim_dma_unanswered      = shim_dma_driver_errors;

TEST_P(shim_dma_driver_refusals, start_nothing)
{
    uint64_t id = 77;
    for (int i = 0; i < 200; ++i) {
        driver_answer = GetParam();
        ASSERT_EQ(
            queue->submit(memory->va(), memory->va() + 64, 64, nullptr, id),
            GetParam());
        ASSERT_EQ(queue->outstanding(), 0u);
        driver_answer = 0;
        if (dev->is_lost()) {
            EXPECT_EQ(GetParam(), -ENODEV);
            EXPECT_EQ(warnings.take().size(), 1u);
            return;
        }
        ASSERT_EQ(copy(*queue, memory->va(), memory->va() + 64, 64), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(codes, shim_dma_driver_errors,
                         ::testing::Values(-ETIMEDOUT, -EIO, -ENODEV));

/* Its memory must not be given back meanwhile. */
TEST_P(shim_dma_unanswered, a_question_that_fails_ends_no_job)
{
    const uint64_t id = start_one();
    driver_answer     = GetParam();
    dma_completion done{};
    EXPECT_EQ(queue->wait(id, 1000), -EAGAIN);
    EXPECT_EQ(queue->poll(&done, 1), 0u);
    EXPECT_EQ(queue->outstanding(), 1u);
    driver_answer = 0;
    EXPECT_EQ(queue->wait(id, patience_us), 0);
    EXPECT_EQ(collect_one(*queue), 0);
    EXPECT_THAT(warnings.take(), ::testing::ElementsAre(::testing::HasSubstr(
                                     "does not tell how its jobs are")));
    EXPECT_FALSE(dev->is_lost());
}

TEST_P(shim_dma_unanswered, a_card_that_never_answers_is_lost)
{
    const uint64_t id = start_one();
    driver_answer     = GetParam();
    EXPECT_EQ(queue->wait(id, 30'000'000), -ENODEV);
    driver_answer = 0;
    EXPECT_TRUE(dev->is_lost());
    EXPECT_THAT(warnings.take(),
                ::testing::ElementsAre(
                    ::testing::HasSubstr("does not tell how its jobs are"),
                    ::testing::HasSubstr(" was given up: ")));
}

INSTANTIATE_TEST_SUITE_P(codes, shim_dma_unanswered,
                         ::testing::Values(-EBUSY, -EFAULT, -EINVAL, -ENOMEM));
INSTANTIATE_TEST_SUITE_P(at_the_submission, shim_dma_driver_refusals,
                         ::testing::Values(-ETIMEDOUT, -EIO, -ENODEV, -EBUSY));

} // namespace
