/* SPDX-License-Identifier: BSD-3-Clause */
/* What other processes can learn about a card. */
#include "gtest/emu/fixture.h"

#include "common/ability.h"
#include "common/child.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

std::string target_of(const std::string &process, int fd)
{
    char text[512];
    const std::string link = "/proc/" + process + "/fd/" + std::to_string(fd);
    const ssize_t length   = readlink(link.c_str(), text, sizeof(text));
    return (length < 0) ? "" : std::string(text, static_cast<size_t>(length));
}

/* Holds card 0. Each line that it gets makes it allocate one more page; the
 * third gives all back. */
GAUDI_CHILD(allocates_on_demand)
{
    if (std::getenv("GAUDI_HIDES") != nullptr) {
        GAUDI_CHILD_REQUIRE(prctl(PR_SET_DUMPABLE, 0) == 0);
    }
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
    return 0;
}

/* Another process that has card 0. */
struct other_holder : child_process {
    explicit other_holder(const environment &more = {})
        : child_process("allocates_on_demand", {more})
    {
        EXPECT_NE(fd, "");
    }

    void allocate()
    {
        write_line("allocate");
        EXPECT_EQ(read_line(), "allocated");
    }

    void end_by_signal()
    {
        kill(SIGKILL);
        EXPECT_EQ(wait().signal, SIGKILL);
    }

    const std::string fd = read_line();
};

/* Tells about card 0 as its control node shows it. */
GAUDI_CHILD(looks_at_card_0_in_use)
{
    const control_node control;
    std::printf("%lu %d\n", control.used() / device_page(),
                control.stats().is_compute_ctx_active);
    return 0;
}

TEST_F(emu, a_compute_node_is_named_after_box_and_card)
{
    const std::string box = std::getenv("HLTHUNK_EMU_NODE");
    raw_card eighth(7);
    EXPECT_EQ(target_of("self", card.fd()),
              "/memfd:hlthunk-emu/" + box + "/accel0 (deleted)");
    EXPECT_EQ(target_of("self", eighth.fd()),
              "/memfd:hlthunk-emu/" + box + "/accel7 (deleted)");
    const control_node control(7);
    EXPECT_EQ(target_of("self", control.fd()),
              "/memfd:hlthunk-emu/" + box + "/accel_controlD7 (deleted)");
}

TEST_F(emu, a_command_buffer_is_mapped_from_the_node)
{
    uint64_t handle = 0;
    ASSERT_EQ(api().hlthunk_request_command_buffer(card.fd(), 1, &handle), 0);
    EXPECT_NE(handle, 0u);
    void *buffer = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                        card.fd(), static_cast<off_t>(handle));
    ASSERT_NE(buffer, MAP_FAILED);
    EXPECT_TRUE(all_bytes_are(buffer, 4096, 0));
    munmap(buffer, 4096);
}

/* --- device memory -------------------------------------------------------- */

TEST(emu_sharing, a_control_node_shows_the_memory_that_another_process_uses)
{
    const control_node control;
    EXPECT_EQ(control.used(), 0u);
    other_holder holder;
    EXPECT_EQ(target_of(std::to_string(holder.pid()), std::stoi(holder.fd)),
              "/memfd:hlthunk-emu/" +
                  std::string(std::getenv("HLTHUNK_EMU_NODE")) +
                  "/accel0 (deleted)");
    EXPECT_EQ(control.used(), 0u);
    for (uint64_t pages : {1u, 2u, 0u}) {
        holder.write_line("go on");
        ASSERT_NE(holder.read_line(), "");
        EXPECT_EQ(control.used(), pages * device_page());
        EXPECT_EQ(control_node(1).used(), 0u) << "of another card";
    }
    holder.write_line("exit");
    EXPECT_EQ(holder.wait().exit_code, 0);
    EXPECT_EQ(control.used(), 0u);
}

TEST(emu_sharing, memory_of_a_killed_process_is_free)
{
    const control_node control;
    other_holder holder;
    holder.allocate();
    EXPECT_EQ(control.used(), device_page());
    holder.end_by_signal();
    EXPECT_EQ(control.used(), 0u);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
}

TEST(emu_sharing, a_node_of_another_box_is_another_card)
{
    other_holder holder(
        environment{{"HLTHUNK_EMU_NODE", "other-" + std::to_string(getpid())}});
    holder.allocate();
    const control_node control;
    EXPECT_EQ(control.used(), 0u);
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
}

TEST_F(emu, memory_of_a_card_is_in_use_until_the_last_copy_of_its_node_goes)
{
    const control_node control;
    ASSERT_NE(card.allocate(1), 0u);
    EXPECT_EQ(control.used(), device_page());
    const int copy = fcntl(card.fd(), F_DUPFD_CLOEXEC, 0);
    close_card(card);
    EXPECT_EQ(control.used(), device_page());
    close(copy);
    EXPECT_EQ(control.used(), 0u);

    other_holder holder;
    holder.allocate();
    EXPECT_EQ(control.used(), device_page());
}

TEST_F(emu, a_forked_child_sees_what_the_parent_uses)
{
    const control_node control;
    ASSERT_NE(card.allocate(1), 0u);
    forked_process child([&] {
        GAUDI_CHILD_REQUIRE(control.used() == device_page());
        GAUDI_CHILD_REQUIRE(control.stats().is_compute_ctx_active == 1);
        GAUDI_CHILD_REQUIRE(control.stats().compute_ctx_in_release == 0);
        GAUDI_CHILD_REQUIRE(hl().hlthunk_close(card.fd()) == 0);
        GAUDI_CHILD_REQUIRE(control.used() == device_page());
        GAUDI_CHILD_REQUIRE(control.stats().is_compute_ctx_active == 1);
        return 0;
    });
    EXPECT_EQ(child.wait().exit_code, 0);
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

TEST(emu_open_stats, tell_how_long_the_card_was_open)
{
    const control_node control;
    {
        raw_card card;
        const uint64_t va = card.allocate_mapped(1);
        card.pause(true);
        const uint64_t seq =
            card.start({card.copy_chunk(edma0, va, va + 64, 64)});
        EXPECT_EQ(card.wait(seq, 30000), busy); /* 30 ms */
    }
    EXPECT_GE(control.stats().last_open_period_ms, 30u);
    EXPECT_LT(control.stats().last_open_period_ms, 20000u);
}

TEST(emu_open_stats, know_the_card_of_another_process)
{
    const control_node control;
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    other_holder holder;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(control.stats().is_compute_ctx_active, 1);
        EXPECT_EQ(control.stats().compute_ctx_in_release, 0);
        EXPECT_EQ(control_node(1).stats().is_compute_ctx_active, 0);
    }
    holder.end_by_signal();
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    raw_card card;
    EXPECT_GE(card.fd(), 0) << "asking did not take it";
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

TEST_F(emu, asking_about_a_card_that_was_closed_with_plain_close_frees_it)
{
    const control_node control;
    ASSERT_EQ(close(card.fd()), 0);
    card.release();
    EXPECT_EQ(control.stats().is_compute_ctx_active, 0);
    other_holder holder;
}

TEST(emu_open_stats, need_a_node_and_a_place)
{
    const control_node control;
    hlthunk_open_stats_info stats{};
    EXPECT_EQ(hl().hlthunk_get_open_stats(control.fd(), nullptr), -EINVAL);
    EXPECT_EQ(hl().hlthunk_get_open_stats(-1, &stats), -EBADF);
    EXPECT_EQ(hl().hlthunk_get_open_stats(STDIN_FILENO, &stats), -EBADF);
}

/* Root looks into any process, so the holder cannot hide from it. */
TEST(emu_sharing, a_holder_that_hides_is_taken_for_one_that_uses_nothing)
{
    other_holder holder(environment{{"GAUDI_HIDES", "1"}});
    holder.allocate();

    child_process observer("looks_at_card_0_in_use",
                           {{{"HLTHUNK_EMU_LOG", "1"}}});
    const std::string line    = observer.read_line();
    const child_result result = observer.wait();
    EXPECT_EQ(result.exit_code, 0) << result.error;
    if (geteuid() == 0) {
        EXPECT_EQ(line, "1 1");
    } else {
        EXPECT_EQ(line, "0 1");
        EXPECT_THAT(result.error,
                    ::testing::HasSubstr("cannot be looked into"));
    }
}

/* In a mount namespace anybody can have a FIFO that /proc shows under the name
 * of a card's file. */
TEST(emu_sharing, a_fifo_under_the_name_of_a_node_is_not_waited_for)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWNS, "tmpfs"));
    const scratch_directory files;
    const std::string box = "fifo-" + std::to_string(getpid());
    child_process holder(
        "holds_a_fifo",
        {{{"HLTHUNK_EMU_NODE", box}, {"FOLDER", files.path("")}}, -1});
    ASSERT_EQ(holder.read_line(),
              "/memfd:hlthunk-emu/" + box + "/accel0 (deleted)");
    child_process observer("looks_at_card_0_in_use",
                           {{{"HLTHUNK_EMU_NODE", box}}, -1});
    EXPECT_EQ(observer.read_line(), "0 1");
    EXPECT_FALSE(observer.wait().timed_out);
}

GAUDI_CHILD(holds_a_fifo)
{
    const std::string root = std::getenv("FOLDER");
    const std::string node = std::getenv("HLTHUNK_EMU_NODE");
    const std::string fifo =
        root + "/memfd:hlthunk-emu/" + node + "/accel0 (deleted)";
    const raw_card card;
    GAUDI_CHILD_REQUIRE(unshare(CLONE_NEWNS) == 0);
    GAUDI_CHILD_REQUIRE(
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    GAUDI_CHILD_REQUIRE(mount("none", root.c_str(), "tmpfs", 0, nullptr) == 0);
    std::filesystem::create_directories(
        std::filesystem::path(fifo).parent_path());
    GAUDI_CHILD_REQUIRE(mkfifo(fifo.c_str(), 0666) == 0);
    const int fd = open(fifo.c_str(), O_PATH | O_CLOEXEC);
    GAUDI_CHILD_REQUIRE(umount2(root.c_str(), MNT_DETACH) == 0);
    tell_parent(target_of("self", fd));
    wait_for_parent();
    return 0;
}

} // namespace
