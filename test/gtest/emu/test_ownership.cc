/* SPDX-License-Identifier: BSD-3-Clause */
/* Who has a card, across processes. */
#include "gtest/emu/fixture.h"

#include "common/ability.h"
#include "common/child.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <csignal>
#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

child_options in_box(const std::string &node)
{
    return {{{"HLTHUNK_EMU_NODE", node}}};
}

/* Exit code: 0 for success, else the positive errno. */
GAUDI_CHILD(opens_card_0)
{
    const int fd = open_card(0);
    return (fd < 0) ? -fd : 0;
}

GAUDI_CHILD(opens_card_1)
{
    const int fd = open_card(1);
    return (fd < 0) ? -fd : 0;
}

GAUDI_CHILD(holds_card_0)
{
    GAUDI_CHILD_REQUIRE(open_card(0) >= 0);
    tell_parent("open");
    wait_for_parent();
    return 0;
}

TEST_F(emu, another_box_has_cards_of_its_own)
{
    EXPECT_TRUE(child_passes("opens_card_0",
                             in_box("other-" + std::to_string(getpid()))));
}

TEST(emu_ownership, a_card_is_free_at_once_when_its_holder_is_killed)
{
    child_process holder("holds_card_0");
    ASSERT_EQ(holder.read_line(), "open");
    EXPECT_EQ(open_card(0), -EBUSY);
    holder.kill(SIGKILL);
    EXPECT_EQ(holder.wait().signal, SIGKILL);

    own_card card;
}

TEST(emu_ownership, nothing_named_is_left_behind)
{
    const std::string node = std::getenv("HLTHUNK_EMU_NODE");
    {
        own_card card;
        const uint64_t va = card.allocate_mapped(1);
        EXPECT_EQ(card.copy(edma0, va, va + 4096, 64), completed);
    }
    child_process holder("holds_card_0");
    ASSERT_EQ(holder.read_line(), "open");
    const std::string name = '/' + std::to_string(holder.pid()) + '.';
    EXPECT_NE(read_file("/proc/net/unix").find(name), std::string::npos);
    holder.kill(SIGKILL);
    holder.wait();

    EXPECT_EQ(read_file("/proc/net/unix").find(name), std::string::npos);
    for (const char *directory : {"/dev/shm", "/tmp", "/var/tmp"}) {
        EXPECT_FALSE(directory_mentions(directory, "hlthunk-emu-"));
        EXPECT_FALSE(directory_mentions(directory, node));
    }
}

/* --- one box, one kind of cards ------------------------------------------- */

struct other_setting {
    const char *name;
    const char *value;
    const char *both; /* as the message has them */
};

constexpr other_setting other_settings[] = {
    {"HLTHUNK_EMU_ASIC", "gaudi2b",
     "HLTHUNK_EMU_ASIC=gaudi2b here and gaudi2 there"},
    {"HLTHUNK_EMU_DEVICES", "3", "HLTHUNK_EMU_DEVICES=3 here and 8 there"},
    {"HLTHUNK_EMU_HBM", "1G", "HLTHUNK_EMU_HBM=1008M here and 96G there"},
    {"HLTHUNK_EMU_PORTS", "n", "HLTHUNK_EMU_PORTS=n here and y there"},
    {"HLTHUNK_EMU_TIMING", "hls2",
     "HLTHUNK_EMU_TIMING=hls2 here and off there"}};

GAUDI_CHILD(opens_no_node_of_card_1)
{
    GAUDI_CHILD_REQUIRE(open_card(1) == -EINVAL);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open_control(1, nullptr) == -EINVAL);
    return 0;
}

void refuses_other_settings(const std::string &node)
{
    child_process holder("holds_card_0", in_box(node));
    ASSERT_EQ("open", holder.read_line());
    for (const auto &[name, value, both] : other_settings) {
        child_options options = in_box(node);
        options.environment.emplace_back(name, value);
        const child_result ended =
            run_child("opens_no_node_of_card_1", options);
        EXPECT_EQ(0, ended.exit_code) << ended.error;
        EXPECT_THAT(ended.error, ::testing::HasSubstr(both));
    }
    EXPECT_EQ(0, run_child("opens_card_1", in_box(node)).exit_code);
    /* A box without processes has no settings. */
    holder.kill(SIGKILL);
    (void)holder.wait();
    for (const auto &[name, value, both] : other_settings) {
        child_options options = in_box(node);
        options.environment.emplace_back(name, value);
        const child_result ended = run_child("opens_card_1", options);
        EXPECT_EQ(0, ended.exit_code) << ended.error;
    }
}

TEST(emu_ownership, another_process_with_other_settings_is_refused)
{
    refuses_other_settings("settings-" + std::to_string(getpid()));
}

TEST(emu_ownership, another_process_with_other_settings_is_refused_in_a_folder)
{
    const scratch_directory files;
    refuses_other_settings(files.path("."));
}

/* Two sizes that are the same, and what concerns one process alone. */
TEST(emu_ownership, settings_are_compared_by_what_they_mean)
{
    const std::string node = "settings-" + std::to_string(getpid());
    child_process holder("holds_card_0", in_box(node));
    ASSERT_EQ("open", holder.read_line());
    child_options options = in_box(node);
    options.environment.emplace_back("HLTHUNK_EMU_HBM", "98304M");
    options.environment.emplace_back("HLTHUNK_EMU_ENGINES", "2");
    options.environment.emplace_back("HLTHUNK_EMU_TIMING", "off");
    EXPECT_EQ(0, run_child("opens_card_1", options).exit_code);
}

/* --- names that others can take ------------------------------------------- */

GAUDI_CHILD(sees_that_card_0_is_taken)
{
    const int control = hl().hlthunk_open_control(0, nullptr);
    hlthunk_open_stats_info stats{};
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_open_stats(control, &stats) == 0);
    return (stats.is_compute_ctx_active != 0) ? 0 : 1;
}

TEST(emu_ownership, a_folder_is_a_box_by_whatever_path)
{
    const scratch_directory files;
    const std::string path  = files.path(".");
    const std::string other = files.path("other");
    const char *const sees  = "sees_that_card_0_is_taken";
    ASSERT_EQ(0, mkdir(other.c_str(), 0700));
    child_process holder("holds_card_0", in_box(path));
    ASSERT_EQ("open", holder.read_line());
    EXPECT_EQ(EBUSY, run_child("opens_card_0", in_box(path + "/.")).exit_code);
    EXPECT_EQ(0, run_child("opens_card_1", in_box(path)).exit_code);
    EXPECT_EQ(0, run_child("opens_card_0", in_box(other)).exit_code);
    EXPECT_EQ(0, run_child(sees, in_box(path)).exit_code);
    holder.kill(SIGKILL);
    (void)holder.wait();
    EXPECT_EQ(1, run_child(sees, in_box(path)).exit_code);
    EXPECT_EQ(0, run_child("opens_card_0", in_box(path)).exit_code);
}

TEST(emu_ownership, a_folder_that_others_may_write_to_is_no_box)
{
    const scratch_directory files;
    ASSERT_EQ(0, chmod(files.path(".").c_str(), 0777));
    for (const std::string &path :
         {files.path("."), files.path("none"), files.file("file", "")}) {
        const child_result ended = run_child("opens_card_0", in_box(path));
        EXPECT_NE(0, ended.exit_code);
        EXPECT_THAT(ended.error, ::testing::HasSubstr("HLTHUNK_EMU_NODE"));
    }
}

/* --- programs with more rights -------------------------------------------- */

GAUDI_CHILD(counts_cards)
{
    return hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE);
}

/* A copy of this program that takes another group's rights. */
TEST(emu_ownership, a_program_with_more_rights_heeds_no_settings)
{
    GAUDI_SKIP_IF(why_no_other_user());
    const scratch_directory files;
    const std::string copy = files.path("copy");
    std::filesystem::copy_file("/proc/self/exe", copy);
    ASSERT_EQ(0, chown(copy.c_str(), static_cast<uid_t>(-1), 65534));
    for (const auto &[mode, cards] : {std::pair{0755u, 3}, {02755u, 8}}) {
        ASSERT_EQ(0, chmod(copy.c_str(), mode));
        forked_process started([&] {
            setenv("HLTHUNK_EMU_DEVICES", "3", 1);
            setenv("HLTHUNK_EMU_NODE", "rights", 1); /* another box */
            execl(copy.c_str(), copy.c_str(), "--gaudi-child=counts_cards",
                  nullptr);
            return 127;
        });
        EXPECT_EQ(cards, started.wait().exit_code) << std::oct << mode;
    }
}

} // namespace
