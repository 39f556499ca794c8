/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing within one process. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <atomic>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

GAUDI_CHILD(may_have_no_file_of_a_gigabyte)
{
    const rlimit limit{1 << 30, 1 << 30};
    GAUDI_CHILD_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    return (open_card(0) == -EFBIG) ? 0 : 1;
}

TEST(emu_opening, a_card_that_is_larger_than_files_may_be_is_refused)
{
    const child_result child = run_child("may_have_no_file_of_a_gigabyte", {});
    EXPECT_EQ(0, child.exit_code) << "and signal " << child.signal;
}

/* Its memory goes with it, and its number is no card's any more. */
TEST(emu_opening, a_card_may_be_closed_with_plain_close)
{
    const int fd = open_card(0);
    ASSERT_GE(fd, 0);
    ASSERT_NE(hl().hlthunk_device_memory_alloc(fd, 1, 0, false, true), 0u);
    ASSERT_EQ(close(fd), 0);
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(file, fd) << "the lowest free number";

    const int again = open_card(0);
    ASSERT_GE(again, 0);
    EXPECT_EQ(usage_of(again).ctx_dram_mem, 0u);
    hlthunk_hw_ip_info info{};
    EXPECT_EQ(hl().hlthunk_get_hw_ip_info(file, &info), -EBADF);
    EXPECT_EQ(hl().hlthunk_get_device_name_from_fd(file),
              HLTHUNK_DEVICE_INVALID);
    EXPECT_EQ(hl().hlthunk_close(again), 0);
    close(file);
}

TEST(emu_opening, a_duplicate_is_the_same_open_card)
{
    const int fd = open_card(0);
    ASSERT_GE(fd, 0);
    const uint64_t handle =
        hl().hlthunk_device_memory_alloc(fd, 1, 0, false, true);
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ASSERT_NE(0u, hl().hlthunk_device_memory_map(copy, handle, 0));

    /* Closed with the last one, whichever that is and however it is closed. */
    EXPECT_EQ(0, hl().hlthunk_close(fd));
    EXPECT_EQ(-EBUSY, open_card(0));
    hlthunk_dram_usage_info usage{};
    EXPECT_EQ(-EBADF, hl().hlthunk_get_dram_usage(fd, &usage));
    EXPECT_EQ(0, hl().hlthunk_get_dram_usage(copy, &usage));
    EXPECT_NE(0u, usage.ctx_dram_mem);
    const int third = fcntl(copy, F_DUPFD_CLOEXEC, 0);
    EXPECT_EQ(0, close(copy));
    EXPECT_EQ(-EBUSY, open_card(0));
    EXPECT_EQ(0, hl().hlthunk_close(third));
    const int again = open_card(0);
    EXPECT_GE(again, 0);
    EXPECT_EQ(0, hl().hlthunk_close(again));
}

TEST(emu_opening, a_closed_card_answers_ebadf)
{
    const int fd = open_card(0);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(hl().hlthunk_close(fd), 0);

    hlthunk_hw_ip_info info{};
    hlthunk_dram_usage_info usage{};
    EXPECT_EQ(hl().hlthunk_get_hw_ip_info(fd, &info), -EBADF);
    EXPECT_EQ(hl().hlthunk_get_dram_usage(fd, &usage), -EBADF);
    EXPECT_EQ(hl().hlthunk_get_device_status_info(fd), -EBADF);
    EXPECT_EQ(hl().hlthunk_memory_unmap(fd, 1), -EBADF);
    EXPECT_EQ(hl().hlthunk_device_memory_free(fd, 1), -EBADF);
    EXPECT_EQ(hl().hlthunk_close(fd), -1);
}

TEST(emu_opening, unknown_bus_ids_are_refused)
{
    for (const char *unknown : {"", "0000:19:00", "0000:18:00.0", "nonsense",
                                "0001:19:00.0", "0000:19:00.0 "}) {
        EXPECT_EQ(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, unknown), -EINVAL)
            << unknown;
        EXPECT_EQ(hl().hlthunk_open_control(0, unknown), -EINVAL) << unknown;
        EXPECT_LT(api().hlthunk_open_control_by_bus_id(unknown), 0) << unknown;
    }
}

TEST(emu_opening, without_a_bus_id_the_first_free_card_is_taken)
{
    own_card first(0);
    own_card third(2);

    std::vector<int> fds;
    for (unsigned expected : {1u, 3u, 4u, 5u, 6u, 7u}) {
        fds.push_back(hl().hlthunk_open(HLTHUNK_DEVICE_GAUDI2, nullptr));
        ASSERT_GE(fds.back(), 0);
        EXPECT_EQ(open_card(expected), -EBUSY);
    }
    errno = 0;
    EXPECT_EQ(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr), -1);
    EXPECT_EQ(errno, EBUSY);
    for (int fd : fds) {
        EXPECT_EQ(hl().hlthunk_close(fd), 0);
    }
}

TEST(emu_opening, there_are_no_cards_of_another_kind)
{
    for (hlthunk_device_name other :
         {HLTHUNK_DEVICE_GAUDI, HLTHUNK_DEVICE_GAUDI3, HLTHUNK_DEVICE_GOYA}) {
        errno = 0;
        EXPECT_EQ(hl().hlthunk_open(other, nullptr), -1);
        EXPECT_EQ(errno, ENOENT);
    }
}

TEST(emu_opening, of_racing_openers_exactly_one_wins)
{
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> winner{-1};
        std::atomic<int> losers{0};
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                const int fd = open_card(0);
                if (fd >= 0) {
                    winner = fd;
                } else if (fd == -EBUSY) {
                    ++losers;
                }
            });
        }
        threads.clear(); /* when they have ended */
        EXPECT_EQ(losers, 3);
        ASSERT_GE(winner, 0);
        EXPECT_EQ(hl().hlthunk_close(winner), 0);
    }
}

TEST(emu_opening, opening_and_closing_leaves_no_descriptors)
{
    {
        own_card warm_up;
    }
    const unsigned before = count_open_fds();
    for (int i = 0; i < 50; ++i) {
        own_card card;
        const uint64_t va = card.allocate_mapped(1);
        EXPECT_EQ(card.copy(edma0, va, va + 4096, 4096), completed);
        const int control = hl().hlthunk_open_control(0, nullptr);
        EXPECT_EQ(hl().hlthunk_close(control), 0);
    }
    EXPECT_EQ(count_open_fds(), before);
}

/* --- control nodes -------------------------------------------------------- */

TEST(emu_control, never_takes_the_card)
{
    const int control = hl().hlthunk_open_control(0, bus_id(0).c_str());
    ASSERT_GE(control, 0);
    const int compute = open_card(0);
    EXPECT_GE(compute, 0);
    const int second = hl().hlthunk_open_control(0, nullptr);
    EXPECT_GE(second, 0) << "of a taken card, too";
    EXPECT_EQ(hl().hlthunk_close(control), 0);
    EXPECT_EQ(open_card(0), -EBUSY) << "closing it frees nothing";
    EXPECT_EQ(hl().hlthunk_close(second), 0);
    EXPECT_EQ(hl().hlthunk_close(compute), 0);
}

TEST(emu_control, opens_by_every_name_of_a_card)
{
    const std::string id = bus_id(3);
    for (int fd : {hl().hlthunk_open_control(3, nullptr),
                   hl().hlthunk_open_control(0, id.c_str()),
                   api().hlthunk_open_control_by_bus_id(id.c_str()),
                   api().hlthunk_open_control_by_module_id(3),
                   api().hlthunk_open_control_by_name(HLTHUNK_DEVICE_GAUDI2,
                                                      id.c_str())}) {
        ASSERT_GE(fd, 0);
        const auto info = info_of(fd);
        EXPECT_EQ(info.module_id, 3u);
        EXPECT_EQ(hl().hlthunk_close(fd), 0);
    }
}

TEST(emu_control, does_nothing_but_inform)
{
    own_card holder;
    const uint64_t handle = holder.allocate(1);
    const int control     = hl().hlthunk_open_control(0, nullptr);
    ASSERT_GE(control, 0);

    errno = 0;
    EXPECT_EQ(hl().hlthunk_device_memory_alloc(control, 1, 0, false, true), 0u);
    EXPECT_EQ(errno, ENOTTY);
    EXPECT_EQ(hl().hlthunk_device_memory_map(control, handle, 0), 0u);
    EXPECT_EQ(hl().hlthunk_device_memory_free(control, handle), -ENOTTY);
    uint32_t status = 0;
    EXPECT_EQ(hl().hlthunk_wait_for_cs(control, 1, 0, &status), -ENOTTY);

    const auto usage = usage_of(control);
    EXPECT_EQ(usage.ctx_dram_mem, 0u) << "the control node has none";
    EXPECT_EQ(hl().hlthunk_close(control), 0);
}

} // namespace
