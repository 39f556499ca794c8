/* Who has a card, across processes. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

int open_card(unsigned index)
{
    return hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id(index).c_str());
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

GAUDI_CHILD(looks_at_card_0)
{
    const int control = hl().hlthunk_open_control(0, nullptr);
    GAUDI_CHILD_REQUIRE(control >= 0);
    hlthunk_hw_ip_info info{};
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_hw_ip_info(control, &info) == 0);
    GAUDI_CHILD_REQUIRE(info.module_id == 0);
    return 0;
}

TEST_F(emu, another_process_finds_an_open_card_busy)
{
    EXPECT_EQ(run_child("opens_card_0").exit_code, EBUSY);
    EXPECT_EQ(run_child("opens_card_1").exit_code, 0);
}

TEST_F(emu, another_process_may_look_at_an_open_card)
{
    const child_result result = run_child("looks_at_card_0");
    EXPECT_EQ(result.exit_code, 0) << result.error;
}

TEST_F(emu, another_box_has_cards_of_its_own)
{
    child_options other;
    other.environment = {
        {"HLTHUNK_EMU_NODE", "other-" + std::to_string(getpid())}};
    EXPECT_EQ(run_child("opens_card_0", other).exit_code, 0);
}

TEST(emu_ownership, a_card_is_free_when_its_holder_has_exited)
{
    child_process holder("holds_card_0");
    ASSERT_EQ(holder.read_line(), "open");
    EXPECT_EQ(open_card(0), -EBUSY);
    EXPECT_EQ(emulator::instance().hlthunk_open_by_module_id(0), -EBUSY);
    holder.write_line("exit");
    EXPECT_EQ(holder.wait().exit_code, 0);

    raw_card card;
    EXPECT_GE(card.fd(), 0);
}

TEST(emu_ownership, a_card_is_free_at_once_when_its_holder_is_killed)
{
    child_process holder("holds_card_0");
    ASSERT_EQ(holder.read_line(), "open");
    EXPECT_EQ(open_card(0), -EBUSY);
    holder.kill(SIGKILL);
    EXPECT_EQ(holder.wait().signal, SIGKILL);

    raw_card card;
    EXPECT_GE(card.fd(), 0);
}

TEST(emu_ownership, nothing_named_is_left_behind)
{
    const std::string node = std::getenv("HLTHUNK_EMU_NODE");
    {
        raw_card card;
        ASSERT_GE(card.fd(), 0);
        const uint64_t va = card.allocate_mapped(1);
        EXPECT_EQ(card.copy(edma0, va, va + 4096, 64), completed);
        /* The one name there is, and it is of no file. */
        EXPECT_NE(read_file("/proc/net/unix").find(node + "/accel0"),
                  std::string::npos);
        for (const char *directory : {"/dev/shm", "/tmp", "/var/tmp"}) {
            EXPECT_FALSE(directory_mentions(directory, "hlthunk-emu-"));
            EXPECT_FALSE(directory_mentions(directory, node));
        }
    }
    child_process holder("holds_card_0");
    ASSERT_EQ(holder.read_line(), "open");
    holder.kill(SIGKILL);
    holder.wait();

    EXPECT_EQ(read_file("/proc/net/unix").find(node), std::string::npos);
    for (const char *directory : {"/dev/shm", "/tmp", "/var/tmp"}) {
        EXPECT_FALSE(directory_mentions(directory, "hlthunk-emu-"));
        EXPECT_FALSE(directory_mentions(directory, node));
    }
}

TEST_F(emu, a_forked_child_shares_the_open_card)
{
    /* As with any file: the node stays open while a copy of it does. */
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        char letter = 0;
        close(ready[1]);
        const bool ended = (read(ready[0], &letter, 1) == 0);
        _exit(ended ? 0 : 1);
    }
    close(ready[0]);
    EXPECT_EQ(run_child("opens_card_0").exit_code, EBUSY);
    close(ready[1]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(hl().hlthunk_close(card.fd()), 0);
    card.release();
    EXPECT_EQ(run_child("opens_card_0").exit_code, 0);
}

} // namespace
