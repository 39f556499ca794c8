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

TEST_F(shim_device, opens_once)
{
    std::unique_ptr<device> second;
    EXPECT_EQ(device::open(hl(), bus_id(0), second), -EBUSY);
    EXPECT_EQ(second, nullptr);
    dev.reset();
    EXPECT_EQ(device::open(hl(), bus_id(0), second), 0);
}

TEST_F(shim_device, a_failed_open_leaves_the_output_alone)
{
    auto other         = open_card(hl(), 1);
    const device *kept = other.get();
    EXPECT_EQ(device::open(hl(), "0000:00:00.0", other), -EINVAL);
    EXPECT_EQ(device::open(hl(), "", other), -EINVAL);
    EXPECT_EQ(device::open(hl(), bus_id(0), other), -EBUSY);
    EXPECT_EQ(other.get(), kept);
}

TEST_F(shim_device, a_card_that_does_not_describe_itself_is_closed)
{
    library mute(emulator_path());
    mute.hlthunk_get_hw_ip_info = [](int, hlthunk_hw_ip_info *) {
        return -EIO;
    };
    const unsigned before = count_open_fds();
    std::unique_ptr<device> second;
    EXPECT_EQ(device::open(mute, bus_id(1), second), -EIO);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(count_open_fds(), before);
    EXPECT_EQ(device::open(hl(), bus_id(1), second), 0);
}

TEST_F(shim_device, a_failed_close_is_warned_about)
{
    library stubborn(emulator_path());
    stubborn.hlthunk_close = [](int fd) {
        hl().hlthunk_close(fd);
        errno = EIO;
        return -1;
    };
    auto second = open_card(stubborn, 1);
    second.reset();
    EXPECT_THAT(warnings.take(),
                ElementsAre(AllOf(HasSubstr("closing"), HasSubstr(bus_id(1)))));
}

TEST_F(shim_device, many_cards_are_open_at_a_time)
{
    std::vector<std::unique_ptr<device>> all;
    for (unsigned i = 1; i < 8; ++i) {
        all.emplace_back();
        ASSERT_EQ(device::open(hl(), bus_id(i), all.back()), 0);
        EXPECT_EQ(all.back()->module_id(), i);
    }
}

TEST_F(shim_device, without_a_handler_warnings_go_to_stderr)
{
    gaudi::util::set_warning_handler(nullptr);
    ::testing::internal::CaptureStderr();
    gaudi::util::warn("number %d", 7);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "gaudi: number 7\n");
}

TEST_F(shim_device, a_long_warning_is_cut)
{
    gaudi::util::warn("%s", std::string(10000, 'w').c_str());
    const auto texts = warnings.take();
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_GE(texts[0].size(), 100u);
    EXPECT_EQ(texts[0], std::string(texts[0].size(), 'w'));
}

/* --- submissions ---------------------------------------------------------- */

/* A chunk that the driver refuses after it has given it a number. */
hl_cs_chunk bad_chunk()
{
    hl_cs_chunk chunk{};
    chunk.queue_index    = 1000;
    chunk.cs_chunk_flags = chunk_flag_user_cb;
    return chunk;
}

TEST_F(shim_device, a_refused_submission_is_reported)
{
    hl_cs_chunk chunk = bad_chunk();
    ticket given{77};
    EXPECT_EQ(dev->jobs().submit(&chunk, 1, given), -EINVAL);
    EXPECT_EQ(given, ticket{77});
}

TEST_F(shim_device, a_full_card_is_again_after_a_refusal_too)
{
    /* The refused one has used up a number, so the driver's next slot is not
     * the one behind the last job. Asked all the same, the driver blocks. */
    device_memory memory(*dev, 1);
    auto queue = make_queue(dma_direction::device_to_device);
    pause(true);
    for (unsigned i = 0; i < max_cs_in_flight - 1; ++i) {
        start(*queue, memory.va(), memory.va() + 64, 64);
    }
    hl_cs_chunk chunk = bad_chunk();
    ticket given      = ticket::none;
    ASSERT_EQ(dev->jobs().submit(&chunk, 1, given), -EINVAL);

    std::atomic<pid_t> submitter{0};
    std::atomic<int> result{1};
    std::thread thread([&] {
        uint64_t id = 0;
        submitter   = gettid();
        result = queue->submit(memory.va(), memory.va() + 64, 64, nullptr, id);
    });
    EXPECT_TRUE(eventually([&] {
        return (result != 1) || ((submitter != 0) && is_blocked(submitter));
    }));
    EXPECT_EQ(result, -EAGAIN) << "1: it blocks";
    pause(false);
    thread.join();
}

TEST_F(shim_device, a_job_that_the_driver_lost_is_reported_as_such)
{
    static int answer = 0;
    library odd(emulator_path());
    odd.hlthunk_wait_for_cs = [](int, uint64_t, uint64_t, uint32_t *status) {
        *status = (answer == 0) ? cs_completed : cs_busy;
        return answer;
    };
    auto second                       = open_card(odd, 1);
    const std::pair<int, int> cases[] = {{0, 1},
                                         {-ETIMEDOUT, -ETIMEDOUT},
                                         {-EIO, -EIO},
                                         {-EBUSY, 0}, /* it may still run */
                                         {-ENODEV, -ENODEV}};
    for (const auto &[driver, expected] : cases) {
        answer = driver;
        EXPECT_EQ(second->query(ticket{1}, 0), expected) << driver;
    }
    EXPECT_TRUE(second->is_lost()) << "by the last answer";
    EXPECT_EQ(warnings.take().size(), 2u) << "of no answer, and of the loss";
}

/* Newer libraries give the status as the result, too. */
TEST_F(shim_device, the_status_tells_how_a_job_is_whatever_the_result)
{
    static int result      = 0;
    static uint32_t answer = 0;
    library odd(emulator_path());
    odd.hlthunk_wait_for_cs = [](int, uint64_t, uint64_t, uint32_t *status) {
        *status = answer;
        return result;
    };
    auto second                            = open_card(odd, 1);
    const std::pair<uint32_t, int> cases[] = {{cs_completed, 1},
                                              {cs_busy, 0},
                                              {cs_timed_out, -ETIMEDOUT},
                                              {cs_aborted, -EIO},
                                              {7 /* none of them */, -EIO}};
    for (const auto &[status, expected] : cases) {
        answer = status;
        for (const int given : {0, static_cast<int>(status)}) {
            result = given;
            EXPECT_EQ(second->query(ticket{1}, 0), expected)
                << "status " << status << ", result " << given;
        }
    }
}

TEST_F(shim_device, a_job_that_is_busy_by_its_result_has_not_ended)
{
    /* The device of the test has it to its end. */
    static library newer(emulator_path());
    newer.hlthunk_wait_for_cs = [](int fd, uint64_t seq, uint64_t timeout_us,
                                   uint32_t *status) {
        const int ret = hl().hlthunk_wait_for_cs(fd, seq, timeout_us, status);
        return (ret < 0) ? ret : static_cast<int>(*status);
    };
    dev.reset();
    dev                   = open_card(newer, 0);
    constexpr size_t size = 100000;
    device_memory memory(*dev, size);
    host_memory from(*dev, size);
    host_memory to(*dev, size);
    fill_pattern(from.data(), size, 1);
    auto down = make_queue(dma_direction::host_to_device);
    auto up   = make_queue(dma_direction::device_to_host);

    pause(true);
    const uint64_t id = start(*down, memory.va(), from.va(), size);
    dma_completion ended{};
    ASSERT_EQ(down->poll(&ended, 1), 0u);
    EXPECT_EQ(down->wait(id, 0), -EAGAIN);
    pause(false);
    EXPECT_EQ(down->wait(id, patience_us), 0);
    EXPECT_EQ(collect_one(*down), 0);
    EXPECT_EQ(copy(*up, to.va(), memory.va(), size), 0);
    EXPECT_TRUE(has_pattern(to.data(), size, 1));
}

} // namespace
