/* SPDX-License-Identifier: BSD-3-Clause */
/* What other processes can learn about a card. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

using namespace gaudi::test;

namespace {

/* Holds card 0. Each line that it gets makes it allocate one more page; the
 * third gives all back, and the fourth takes one again. */
GAUDI_CHILD(allocates_on_demand)
{
    own_card card;
    uint64_t handles[2];
    tell_parent(std::to_string(card.fd()));
    for (uint64_t &handle : handles) {
        wait_for_parent();
        handle = card.allocate(device_page());
        tell_parent("allocated");
    }
    wait_for_parent();
    for (uint64_t handle : handles) {
        GAUDI_CHILD_REQUIRE(
            hl().hlthunk_device_memory_free(card.fd(), handle) == 0);
    }
    tell_parent("freed");
    wait_for_parent();
    (void)card.allocate(device_page());
    tell_parent("allocated");
    wait_for_parent();
    return 0;
}

/* Another process that has card 0. */
struct other_holder : child_process {
    other_holder() : child_process("allocates_on_demand") { EXPECT_NE(fd, ""); }

    const std::string fd = read_line();
};

/* --- device memory -------------------------------------------------------- */

TEST(emu_sharing, a_control_node_shows_the_memory_that_another_process_uses)
{
    const control_node control;
    EXPECT_EQ(control.used(), 0u);
    other_holder holder;
    const std::filesystem::path link =
        "/proc/" + std::to_string(holder.pid()) + "/fd/" + holder.fd;
    EXPECT_EQ(std::filesystem::read_symlink(link),
              "/memfd:hlthunk-emu/" +
                  std::string(std::getenv("HLTHUNK_EMU_NODE")) +
                  "/accel0 (deleted)");
    EXPECT_EQ(control.stats().is_compute_ctx_active, 1);
    EXPECT_EQ(control.stats().compute_ctx_in_release, 0);
    EXPECT_EQ(control_node(1).stats().is_compute_ctx_active, 0);
    EXPECT_EQ(control.used(), 0u);
    for (uint64_t pages : {1u, 2u, 0u, 1u}) {
        holder.write_line("go on");
        ASSERT_NE(holder.read_line(), "");
        EXPECT_EQ(control.used(), pages * device_page());
        EXPECT_EQ(control_node(1).used(), 0u) << "of another card";
    }
    holder.kill(SIGKILL);
    EXPECT_EQ(holder.wait().signal, SIGKILL);
    EXPECT_EQ(control.used(), 0u);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    own_card free_now;
}

/* --- open statistics ------------------------------------------------------ */

TEST(emu_open_stats, count_the_opens_of_a_card)
{
    const control_node control;
    const uint64_t before = control.stats().open_counter;
    for (uint64_t i = 1; i <= 3; ++i) {
        raw_card card;
        hlthunk_open_stats_info stats{};
        ASSERT_EQ(hl().hlthunk_get_open_stats(card.fd(), &stats), 0);
        EXPECT_EQ(stats.open_counter, before + i);
        EXPECT_EQ(stats.is_compute_ctx_active, 1);
        EXPECT_EQ(stats.compute_ctx_in_release, 0);
        EXPECT_EQ(control.stats().is_compute_ctx_active, 1);
        raw_card refused;
        EXPECT_EQ(refused.fd(), -EBUSY);
    }
    EXPECT_EQ(control.stats().open_counter, before + 3);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    const uint64_t other = control_node(1).stats().open_counter;
    EXPECT_EQ(control_node(1).stats().open_counter, other) << "takes nothing";
}

TEST_F(emu, open_stats_tell_of_a_card_that_only_a_dmabuf_holds)
{
    const control_node control;
    const uint64_t va = card.allocate_mapped(1);
    const int buf     = export_range(card, va, 4096);
    ASSERT_GE(buf, 0);
    close_card(card);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 1);
    EXPECT_EQ(control.stats().compute_ctx_in_release, 1);
    close(buf);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    EXPECT_EQ(control.stats().compute_ctx_in_release, 0);
}

} // namespace
