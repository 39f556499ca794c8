/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that namespaces keep apart, and the folder by which they meet. */
#include "gtest/ipc/fixture.h"

#include "common/ability.h"
#include "common/process_state.h"
#include "common/scratch.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/ipc/address.h"
#include "uct/gaudi/ipc/folder.h"
#include "uct/gaudi/ipc/socket.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::test {

using gaudi::ipc::interface_address;
using gaudi::ipc::own_machine;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

namespace fs = std::filesystem;

/* What a process in a folder tells of itself. */
struct pod_member {
    ipc::machine_address machine;
    interface_address inbox;
};

class pods : public ipc_test {
protected:
    /* With a box of cards that is not of one network namespace. */
    [[nodiscard]] child_options options() const
    {
        (void)mkdir(box.path("cards").c_str(), 0700);
        return {{{"UCX_GAUDI_IPC_DIR", folder.path("")},
                 {"HLTHUNK_EMU_NODE", box.path("cards")}},
                -1};
    }

    /* The folder of this user in it. */
    [[nodiscard]] std::string own() const
    {
        return folder.path("ucx-gaudi-" + std::to_string(geteuid()));
    }

    [[nodiscard]] std::set<std::string> files() const
    {
        std::set<std::string> names;
        for (const auto &entry : fs::directory_iterator(own())) {
            names.insert(entry.path().filename());
        }
        return names;
    }

    /* What a process says that finds the folder so. */
    [[nodiscard]] std::string complaint() const
    {
        child_process looking("looks_for_its_folder", options());
        const std::string said = looking.read_line();
        expect_end(looking);
        return said;
    }

    scratch_directory folder;
    scratch_directory box;
};

pod_member tell_of(const inbox &of)
{
    return {own_machine(), of.address()};
}

} // namespace

GAUDI_CHILD(looks_for_its_folder)
{
    collect_logs();
    const uint32_t first = own_machine().folder;
    GAUDI_CHILD_REQUIRE(own_machine().folder == first);
    const auto logs = take_logs();
    GAUDI_CHILD_REQUIRE((first == 0) == (logs.size() == 1));
    tell_parent((first == 0) ? logs[0] : "");
    return 0;
}

GAUDI_CHILD(is_there_in_a_folder)
{
    inbox box;
    tell_parent(to_line(tell_of(box)));
    wait_for_parent();
    return 0;
}

GAUDI_CHILD(takes_from_a_folder_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    collect_logs();
    const auto other = from_parent<pod_member>();
    /* It has one of its own there. */
    GAUDI_CHILD_REQUIRE((own_machine().folder != 0) && take_logs().empty());
    GAUDI_CHILD_REQUIRE(own_machine().folder != other.machine.folder);
    GAUDI_CHILD_REQUIRE(!ipc::find_obstacle(other.machine).why.empty());
    /* What another user's sockets are called, it knows. */
    int error = 0;
    GAUDI_CHILD_REQUIRE(
        !ipc::connect_to_path(std::string(std::getenv("UCX_GAUDI_IPC_DIR")) +
                                  "/ucx-gaudi-0/" + line_of_parent(),
                              error));
    GAUDI_CHILD_REQUIRE(error == EACCES);
    return 0;
}

TEST_F(pods, of_other_users_get_nothing)
{
    GAUDI_SKIP_IF(why_no_other_user());
    ASSERT_EQ(0, chmod(folder.path("").c_str(), 0777));
    child_process server("is_there_in_a_folder", options());
    pod_member member{};
    ASSERT_TRUE(from_line(server.read_line(), member));
    ASSERT_THAT(files(), SizeIs(1));
    child_process other("takes_from_a_folder_as_another_user", options());
    other.write_line(to_line(member));
    other.write_line(*files().begin());
    expect_end(other);
    server.write_line("");
    expect_end(server);
}

TEST_F(pods, say_why_a_folder_is_not_used)
{
    const auto expect_complaint = [&](const std::string &why) {
        EXPECT_THAT(complaint(),
                    AllOf(HasSubstr("UCX_GAUDI_IPC_DIR=" + folder.path("")),
                          HasSubstr(why)));
    };
    EXPECT_EQ("", complaint());
    EXPECT_EQ(0700u, unsigned(fs::status(own()).permissions()));
    EXPECT_THAT(files(), IsEmpty()) << "after its end";

    ASSERT_EQ(0, chmod(own().c_str(), 0755));
    expect_complaint("open to other users");
    ASSERT_EQ(0, rmdir(own().c_str()));

    const std::string elsewhere = folder.path("elsewhere");
    ASSERT_EQ(0, mkdir(elsewhere.c_str(), 0700));
    ASSERT_EQ(0, symlink(elsewhere.c_str(), own().c_str()));
    expect_complaint("Not a directory");
    EXPECT_TRUE(fs::is_empty(elsewhere));
    ASSERT_EQ(0, unlink(own().c_str()));

    if (why_no_other_user().empty()) {
        ASSERT_EQ(0, mkdir(own().c_str(), 0700));
        ASSERT_EQ(0, chown(own().c_str(), 12345, 12345));
        expect_complaint("user 12345");
    }
    fs::remove_all(folder.path(""));
    expect_complaint("No such file or directory");
}

GAUDI_CHILD(is_nobody_with_a_folder)
{
    GAUDI_CHILD_REQUIRE(become_another_user(65534));
    collect_logs();
    ipc::machine_address other = own_machine();
    GAUDI_CHILD_REQUIRE(other.folder == 0);
    other.net_namespace ^= 1;
    const auto of_user =
        AllOf(HasSubstr("user 65534 "), HasSubstr("(run as another user)"));
    EXPECT_THAT(take_logs(), ElementsAre(of_user));
    EXPECT_THAT(ipc::find_obstacle(other).why, of_user);
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    return 0;
}

TEST_F(pods, are_not_for_the_user_who_stands_for_all_others)
{
    GAUDI_SKIP_IF(why_no_other_user());
    ASSERT_EQ(0, chmod(folder.path("").c_str(), 01777));
    EXPECT_TRUE(child_passes("is_nobody_with_a_folder", options()));
    EXPECT_TRUE(fs::is_empty(folder.path("")));
}

/* Whoever is there keeps his, and so does who may just be starting. */
TEST_F(pods, clear_away_what_killed_ones_leave)
{
    child_process lives("is_there_in_a_folder", options());
    ASSERT_NE("", lives.read_line());
    const auto of_living = files();
    ASSERT_THAT(of_living, SizeIs(1));
    {
        child_process killed("is_there_in_a_folder", options());
        ASSERT_NE("", killed.read_line());
        killed.kill(SIGKILL);
        (void)killed.wait();
    }
    ASSERT_THAT(files(), SizeIs(2));
    EXPECT_EQ("", complaint());
    EXPECT_THAT(files(), SizeIs(2)) << "they are young";

    const timespec long_ago[2] = {{1, 0}, {1, 0}};
    for (const std::string &name : files()) {
        ASSERT_EQ(
            0, utimensat(AT_FDCWD, (own() + "/" + name).c_str(), long_ago, 0));
    }
    EXPECT_EQ("", complaint());
    EXPECT_EQ(of_living, files());
    lives.write_line("");
    expect_end(lives);
    EXPECT_THAT(files(), IsEmpty());
}

GAUDI_CHILD(forks_in_a_folder)
{
    inbox box;
    const uint64_t parent = box.address().process;
    GAUDI_CHILD_REQUIRE(own_machine().folder != 0);
    forked_process child([&]() -> int {
        inbox second;
        std::exit((own_machine().folder != 0) &&
                          (second.address().process != parent)
                      ? 0
                      : 1);
    });
    GAUDI_CHILD_REQUIRE(child.wait().exit_code == 0);
    forked_process idle([]() -> int { std::exit(0); });
    GAUDI_CHILD_REQUIRE(idle.wait().exit_code == 0);
    /* They have removed their sockets, not this one's. */
    char name[64];
    (void)std::snprintf(name, sizeof(name), "/ucx-gaudi-%u/%016lx", geteuid(),
                        static_cast<unsigned long>(parent));
    int error = 0;
    GAUDI_CHILD_REQUIRE(ipc::connect_to_path(
        std::string(std::getenv("UCX_GAUDI_IPC_DIR")) + name, error));
    return 0;
}

TEST_F(pods, that_fork_have_two_members)
{
    EXPECT_TRUE(child_passes("forks_in_a_folder", options()));
}

} // namespace gaudi::test
