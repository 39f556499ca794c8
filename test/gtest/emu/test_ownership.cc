/* Who has a card, across processes. */
#include "gtest/emu/fixture.h"

#include "common/ability.h"
#include "common/child.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
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
    EXPECT_TRUE(child_passes("looks_at_card_0"));
}

TEST_F(emu, another_box_has_cards_of_its_own)
{
    EXPECT_TRUE(child_passes("opens_card_0",
                             in_box("other-" + std::to_string(getpid()))));
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
        EXPECT_THAT(ended.error,
                    ::testing::HasSubstr("a folder that only you may write "
                                         "to; the emulated box has no cards"));
    }
}

/* Another user, who has bound a name until the end of this. */
class stranger {
public:
    explicit stranger(const std::string &name)
        : process_([&] { return bind_and_wait(name); })
    {
        close(said_[1]);
        char byte = 0;
        EXPECT_EQ(1, read(said_[0], &byte, 1));
    }
    ~stranger()
    {
        close(ends_[1]);
        EXPECT_EQ(0, process_.wait().exit_code);
        close(said_[0]);
        close(ends_[0]);
    }
    stranger(const stranger &)            = delete;
    stranger &operator=(const stranger &) = delete;

private:
    static std::array<int, 2> make_pipe()
    {
        std::array<int, 2> ends{-1, -1};
        EXPECT_EQ(0, pipe2(ends.data(), O_CLOEXEC));
        return ends;
    }

    int bind_and_wait(const std::string &name)
    {
        close(ends_[1]);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
        const auto length = static_cast<socklen_t>(
            offsetof(sockaddr_un, sun_path) + 1 + name.size());
        char byte = 0;
        if ((setresuid(65534, 65534, 65534) != 0) ||
            (bind(socket(AF_UNIX, SOCK_DGRAM, 0),
                  reinterpret_cast<const sockaddr *>(&address), length) != 0)) {
            return 1;
        }
        (void)!write(said_[1], "", 1);
        (void)!read(ends_[0], &byte, 1);
        return 0;
    }

    const std::array<int, 2> said_ = make_pipe();
    const std::array<int, 2> ends_ = make_pipe();
    forked_process process_;
};

TEST(emu_ownership, a_name_that_another_user_has_taken_is_told)
{
    GAUDI_SKIP_IF(why_no_other_user());
    const std::string box = "taken-" + std::to_string(getpid());
    const std::string name =
        "hlthunk-emu/" + std::to_string(geteuid()) + "/" + box + "/accel0";
    const stranger other(name);
    const child_result ended = run_child("opens_card_0", in_box(box));
    EXPECT_EQ(EBUSY, ended.exit_code);
    EXPECT_THAT(ended.error,
                ::testing::HasSubstr("user 65534 has taken the name @" + name));
    EXPECT_THAT(ended.error, ::testing::HasSubstr("HLTHUNK_EMU_NODE=FOLDER"));
    child_process holder("holds_card_1", in_box(box));
    EXPECT_EQ("open", holder.read_line());
    EXPECT_EQ("", run_child("opens_card_1", in_box(box)).error);
}

GAUDI_CHILD(holds_card_1)
{
    GAUDI_CHILD_REQUIRE(open_card(1) >= 0);
    tell_parent("open");
    wait_for_parent();
    return 0;
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
            execl(copy.c_str(), copy.c_str(), "--gaudi-child=counts_cards",
                  nullptr);
            return 127;
        });
        EXPECT_EQ(cards, started.wait().exit_code) << std::oct << mode;
    }
}

} // namespace
