/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening cards, and what the shim tells about them. */
#include "gtest/shim/fixture.h"

#include "common/process_state.h"

#include <atomic>
#include <thread>

#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class shim_device : public shim_test {};

TEST_F(shim_device, knows_its_card)
{
    EXPECT_GE(dev->fd(), 0);
    EXPECT_EQ(dev->bus_id(), bus_id(0));
    EXPECT_EQ(&dev->lib(), &hl());
    EXPECT_TRUE(dev->is_of(HLTHUNK_DEVICE_GAUDI2));
    EXPECT_TRUE(dev->is_of(HLTHUNK_DEVICE_DONT_CARE));
    EXPECT_FALSE(dev->is_of(HLTHUNK_DEVICE_GAUDI3));
    EXPECT_EQ(dev->capabilities().page_bytes, device_page());
    EXPECT_EQ(dev->module_id(), 0u);
}

TEST_F(shim_device, a_failed_open_leaves_the_output_alone)
{
    auto other       = open_card(hl(), 1);
    const card *kept = other.get();
    EXPECT_EQ(open_card(hl(), "0000:00:00.0", other), -EINVAL);
    EXPECT_EQ(open_card(hl(), "", other), -EINVAL);
    EXPECT_EQ(open_card(hl(), bus_id(0), other), -EBUSY);
    EXPECT_EQ(other.get(), kept);
}

TEST_F(shim_device, a_card_that_does_not_describe_itself_is_closed)
{
    library mute(emulator_path());
    mute.hlthunk_get_hw_ip_info = [](int, hlthunk_hw_ip_info *) {
        return -EIO;
    };
    const unsigned before = count_open_fds();
    std::unique_ptr<card> second;
    EXPECT_EQ(open_card(mute, bus_id(1), second), -EIO);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(count_open_fds(), before);
    EXPECT_EQ(open_card(hl(), bus_id(1), second), 0);
}

TEST_F(shim_device, a_program_may_flush_posted_writes)
{
    const auto flush = reinterpret_cast<int (*)(int)>(
        hl().find("hlthunk_cs_flush_pci_hbw_writes"));
    ASSERT_NE(flush, nullptr);
    EXPECT_EQ(flush(dev->fd()), 0);
    EXPECT_EQ(flush(-1), -EBADF);
}

/* --- submissions ---------------------------------------------------------- */

TEST_F(shim_device, a_full_card_is_again_after_a_refusal_too)
{
    /* The refused one has used up a number, so the driver's next slot is not
     * the one behind the last job. Asked all the same, the driver blocks. */
    static bool refuses;
    library faulty(emulator_path());
    faulty.hlthunk_command_submission = [](int fd, hlthunk_cs_in *in,
                                           hlthunk_cs_out *out) {
        if (refuses) {
            static_cast<hl_cs_chunk *>(in->chunks_execute)->queue_index = 1000;
        }
        return hl().hlthunk_command_submission(fd, in, out);
    };
    dev.reset();
    dev         = open_card(faulty);
    auto memory = std::make_unique<device_memory>(*dev, 1);
    auto queue  = make_queue(dma_direction::device_to_device);
    pause(true);
    for (unsigned i = 0; i < max_cs_in_flight - 1; ++i) {
        start(*queue, memory->va(), memory->va() + 64, 64);
    }
    uint64_t id = 0;
    refuses     = true;
    ASSERT_EQ(queue->submit(memory->va(), memory->va() + 64, 64, nullptr, id),
              -EINVAL);
    refuses = false;

    std::atomic<pid_t> submitter{0};
    std::atomic<int> result{1};
    std::thread thread([&] {
        submitter = gettid();
        result =
            queue->submit(memory->va(), memory->va() + 64, 64, nullptr, id);
    });
    EXPECT_TRUE(eventually([&] {
        return (result != 1) || ((submitter != 0) && is_blocked(submitter));
    }));
    EXPECT_EQ(result, -EAGAIN) << "1: it blocks";
    pause(false);
    thread.join();
    queue.reset();
    memory.reset();
    dev.reset(); /* before its library */
}

/* Newer libraries give the status as the result, too. */
TEST_F(shim_device, a_job_is_as_the_driver_says)
{
    static int result;
    static uint32_t status;
    library odd(emulator_path());
    odd.hlthunk_wait_for_cs = [](int, uint64_t, uint64_t, uint32_t *status_p) {
        *status_p = status;
        return result;
    };
    auto second = open_card(odd, 1);
    const struct {
        int result;
        uint32_t status;
        int expected;
    } rows[] = {{0, cs_completed, 1},
                {0, cs_busy, 0},
                {0, cs_timed_out, -ETIMEDOUT},
                {0, cs_aborted, -EIO},
                {0, 7 /* none of them */, -EIO},
                {static_cast<int>(cs_busy), cs_busy, 0},
                {static_cast<int>(cs_timed_out), cs_timed_out, -ETIMEDOUT},
                {static_cast<int>(cs_aborted), cs_aborted, -EIO},
                {-ETIMEDOUT, cs_busy, -ETIMEDOUT},
                {-EIO, cs_busy, -EIO},
                {-EBUSY, cs_busy, 0}, /* it may still run */
                {-ENODEV, cs_busy, -ENODEV}};
    for (const auto &row : rows) {
        result = row.result;
        status = row.status;
        EXPECT_EQ(second->query(ticket{1}, 0), row.expected)
            << "status " << status << ", result " << result;
    }
    EXPECT_TRUE(second->is_lost()) << "by the last answer";
    EXPECT_EQ(warnings.take().size(), 2u) << "of no answer, and of the loss";
}

} // namespace
