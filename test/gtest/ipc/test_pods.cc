/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that namespaces keep apart, and the folder by which they meet. */
#include "gtest/ipc/fixture.h"

#include "common/ability.h"
#include "common/process_state.h"
#include "common/scratch.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "uct/gaudi/ipc/process/reachability.h"
#include "uct/gaudi/ipc/process/shared_folder.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

using gaudi::ipc::mailbox_address;
using gaudi::ipc::own_machine;
using gaudi::ipc::own_process;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace {

namespace fs = std::filesystem;

/* What a process in a folder tells of itself. */
struct pod_member {
    ipc::machine_address machine;
    uint32_t reserved;
    mailbox_address inbox;
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

pod_member tell_of(const gaudi::ipc::mailbox &inbox)
{
    return {own_machine(), 0, inbox.address()};
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

GAUDI_CHILD(answers_in_another_pod)
{
    GAUDI_CHILD_REQUIRE(enter_pod());
    const auto inbox = make_mailbox();
    tell_parent(to_line(tell_of(*inbox)));
    const auto other = from_parent<pod_member>();
    GAUDI_CHILD_REQUIRE(gaudi::ipc::why_unreachable(other.machine).empty());
    const auto out = connect_to(other.inbox);
    received_numbers received;
    GAUDI_CHILD_REQUIRE(out && received.wait(*inbox, 1));
    GAUDI_CHILD_REQUIRE(send_number(*out, received.numbers[0] + 1) == UCS_OK);
    wait_for_parent();
    return 0;
}

/* Both ways; and each hears of the other one's end, asleep or not. */
GAUDI_CHILD(talks_to_another_pod)
{
    GAUDI_CHILD_REQUIRE(enter_pod());
    const auto inbox = make_mailbox();
    child_process peer("answers_in_another_pod");
    pod_member other{};
    GAUDI_CHILD_REQUIRE(from_line(peer.read_line(), other));
    GAUDI_CHILD_REQUIRE(other.machine.pid_namespace !=
                        own_machine().pid_namespace);
    GAUDI_CHILD_REQUIRE(ipc::probe(other.machine, other.inbox.process) ==
                        UCS_OK);
    const auto out = connect_to(other.inbox);
    GAUDI_CHILD_REQUIRE(out && out->peer_alive());
    peer.write_line(to_line(tell_of(*inbox)));
    received_numbers received;
    GAUDI_CHILD_REQUIRE(send_number(*out, 7) == UCS_OK);
    GAUDI_CHILD_REQUIRE(received.wait(*inbox, 1));
    GAUDI_CHILD_REQUIRE(received.numbers[0] == 8);
    GAUDI_CHILD_REQUIRE(inbox->senders() == 1);

    while (!inbox->arm()) {
        (void)received.poll(*inbox);
    }
    peer.kill(SIGKILL);
    pollfd ended{inbox->event_fd(), POLLIN, 0};
    GAUDI_CHILD_REQUIRE(poll(&ended, 1, 20'000) == 1);
    GAUDI_CHILD_REQUIRE(eventually([&] {
        (void)received.poll(*inbox);
        return !out->peer_alive() && (inbox->senders() == 0);
    }));
    GAUDI_CHILD_REQUIRE(ipc::probe(other.machine, other.inbox.process) ==
                        UCS_ERR_UNREACHABLE);
    GAUDI_CHILD_REQUIRE(connect_to(other.inbox) == nullptr);
    return 0;
}

TEST_F(pods, with_a_folder_talk_and_hear_of_their_ends)
{
    GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces));
    EXPECT_TRUE(child_passes("talks_to_another_pod", options()));
}

GAUDI_CHILD(is_there_in_a_folder)
{
    const auto inbox = make_mailbox();
    tell_parent(to_line(tell_of(*inbox)));
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
    GAUDI_CHILD_REQUIRE(!ipc::why_unreachable(other.machine).empty());
    /* What another user's files are called, it knows. */
    const int client       = ipc::open_client().release();
    const std::string path = std::string(std::getenv("UCX_GAUDI_IPC_DIR")) +
                             "/ucx-gaudi-0/" + line_of_parent();
    GAUDI_CHILD_REQUIRE(
        !ipc::connect_to_service(client, ipc::service_name(path)));
    GAUDI_CHILD_REQUIRE(errno == EACCES);
    return 0;
}

TEST_F(pods, of_other_users_get_nothing)
{
    GAUDI_SKIP_IF(why_no_other_user());
    ASSERT_EQ(0, chmod(folder.path("").c_str(), 0777));
    child_process server("is_there_in_a_folder", options());
    pod_member member{};
    ASSERT_TRUE(from_line(server.read_line(), member));
    ASSERT_THAT(files(), SizeIs(2));
    child_process other("takes_from_a_folder_as_another_user", options());
    other.write_line(to_line(member));
    other.write_line(*files().begin());
    expect_end(other);
    server.write_line("");
    expect_end(server);
}

/* Goes on as root of a user namespace who is another user around it, and to
 * whom a folder looks as to root: in a pod with "hostUsers: false".
 * @return What the system refuses, empty when it is done. */
static std::string become_root_elsewhere(const char *shared)
{
    int ends[2];
    EXPECT_EQ(0, pipe2(ends, O_CLOEXEC));
    const long holder = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr,
                                nullptr, nullptr, nullptr);
    if (holder == 0) {
        char byte;
        close(ends[1]);
        (void)!read(ends[0], &byte, sizeof(byte));
        _exit(0);
    }
    const std::string of = "/proc/" + std::to_string(holder);
    EXPECT_TRUE(write_text((of + "/uid_map").c_str(), "0 12345 1") &&
                write_text((of + "/gid_map").c_str(), "0 12345 1"));
    const util::unique_fd users(open((of + "/ns/user").c_str(), O_RDONLY));
    close(ends[0]);
    close(ends[1]);
    waitpid(static_cast<pid_t>(holder), nullptr, 0);

    EXPECT_EQ(0, unshare(CLONE_NEWNS));
    EXPECT_EQ(0, mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
    const util::unique_fd tree(
        open_tree(AT_FDCWD, shared, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    mount_attr mapped{MOUNT_ATTR_IDMAP, 0, 0,
                      static_cast<uint64_t>(users.get())};
    if (!tree || (mount_setattr(tree.get(), "", AT_EMPTY_PATH, &mapped,
                                sizeof(mapped)) != 0)) {
        return std::string("mount_setattr: ") + strerror(errno);
    }
    EXPECT_EQ(0, move_mount(tree.get(), "", AT_FDCWD, shared,
                            MOVE_MOUNT_F_EMPTY_PATH));
    (void)base::box_identity(); /* see become_another_user */
    EXPECT_EQ(0, setns(users.get(), CLONE_NEWUSER));
    EXPECT_EQ(0, setresgid(0, 0, 0));
    EXPECT_EQ(0, setresuid(0, 0, 0));
    EXPECT_EQ(0, prctl(PR_SET_DUMPABLE, 1));
    return {};
}

GAUDI_CHILD(has_the_folder_of_another_root)
{
    const auto other = from_parent<pod_member>();
    const std::string refused =
        become_root_elsewhere(std::getenv("UCX_GAUDI_IPC_DIR"));
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    tell_parent(refused);
    if (refused.empty()) {
        GAUDI_CHILD_REQUIRE(own_machine().folder != 0);
        GAUDI_CHILD_REQUIRE(own_machine().folder != other.machine.folder);
    }
    return 0;
}

TEST_F(pods, of_another_root_are_left_to_others)
{
    GAUDI_SKIP_IF(why_no_other_user());
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER | CLONE_NEWNS));
    child_process server("is_there_in_a_folder", options());
    pod_member member{};
    ASSERT_TRUE(from_line(server.read_line(), member));
    child_process other("has_the_folder_of_another_root", options());
    other.write_line(to_line(member));
    const std::string refused = other.read_line();
    expect_end(other);
    server.write_line("");
    expect_end(server);
    GAUDI_SKIP_IF(refused);
}

TEST_F(pods, say_why_a_folder_is_not_used)
{
    const auto says = [&](const std::string &what) {
        return "gaudi_ipc: UCX_GAUDI_IPC_DIR=" + folder.path("") +
               " is not used: " + what +
               "; processes of other namespaces are out of reach";
    };
    const std::string name = fs::path(own()).filename();
    EXPECT_EQ("", complaint());
    EXPECT_EQ(0700u, unsigned(fs::status(own()).permissions()));
    EXPECT_THAT(files(), IsEmpty()) << "after its end";

    ASSERT_EQ(0, chmod(own().c_str(), 0755));
    EXPECT_EQ(says(name + " in it is open to other users"), complaint());
    ASSERT_EQ(0, rmdir(own().c_str()));

    const std::string elsewhere = folder.path("elsewhere");
    ASSERT_EQ(0, mkdir(elsewhere.c_str(), 0700));
    ASSERT_EQ(0, symlink(elsewhere.c_str(), own().c_str()));
    EXPECT_EQ(says(name + " in it: Not a directory"), complaint());
    EXPECT_TRUE(fs::is_empty(elsewhere));
    ASSERT_EQ(0, unlink(own().c_str()));

    ASSERT_EQ(0, mkfifo(own().c_str(), 0600));
    EXPECT_EQ(says(name + " in it: Not a directory"), complaint());
    ASSERT_EQ(0, unlink(own().c_str()));
    if (why_no_other_user().empty()) {
        ASSERT_EQ(0, mkdir(own().c_str(), 0700));
        ASSERT_EQ(0, chown(own().c_str(), 12345, 12345));
        EXPECT_EQ(says(name + " in it belongs to user 12345"), complaint());
    }
    fs::remove_all(folder.path(""));
    EXPECT_EQ(says("No such file or directory"), complaint());
}

GAUDI_CHILD(is_nobody_with_a_folder)
{
    GAUDI_CHILD_REQUIRE(become_another_user(65534));
    collect_logs();
    ipc::machine_address other = own_machine();
    GAUDI_CHILD_REQUIRE(other.folder == 0);
    other.pid_namespace ^= 1;
    const auto of_user =
        AllOf(HasSubstr("user 65534 "), HasSubstr("(run as another user)"));
    EXPECT_THAT(take_logs(), ElementsAre(of_user));
    EXPECT_THAT(ipc::why_unreachable(other), of_user);
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

GAUDI_CHILD(has_the_folder_of_one_user)
{
    const ipc::machine_address own = own_machine();
    GAUDI_CHILD_REQUIRE(own.folder != 0);
    ipc::machine_address other = own;
    other.pid_namespace ^= 1;
    other.folder += 1;
    EXPECT_THAT(ipc::why_unreachable(other), HasSubstr("names no folder"));
    other.uid += 1;
    EXPECT_THAT(ipc::why_unreachable(other),
                AllOf(HasSubstr("PID namespace"),
                      HasSubstr("belongs to user " + std::to_string(other.uid)),
                      Not(HasSubstr("names no folder"))));
    other.user_namespace ^= 1; /* whose numbers say nothing */
    EXPECT_THAT(ipc::why_unreachable(other), HasSubstr("as one user"));
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    return 0;
}

TEST_F(pods, of_two_users_with_one_folder_say_so)
{
    EXPECT_TRUE(child_passes("has_the_folder_of_one_user", options()));
}

/* Whoever is there keeps his, and so does who may just be starting. */
TEST_F(pods, clear_away_what_killed_ones_leave)
{
    child_process lives("is_there_in_a_folder", options());
    ASSERT_NE("", lives.read_line());
    const auto of_living = files();
    ASSERT_THAT(of_living, SizeIs(2));
    {
        child_process killed("is_there_in_a_folder", options());
        ASSERT_NE("", killed.read_line());
        killed.kill(SIGKILL);
        (void)killed.wait();
    }
    ASSERT_THAT(files(), SizeIs(4));
    EXPECT_EQ("", complaint());
    EXPECT_THAT(files(), SizeIs(4)) << "they are young";

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
    const auto inbox  = make_mailbox();
    const auto parent = own_process();
    GAUDI_CHILD_REQUIRE(own_machine().folder != 0);
    forked_process child([&]() -> int {
        const auto second = make_mailbox();
        std::exit((own_machine().folder != 0) &&
                          (own_process().nonce != parent.nonce)
                      ? 0
                      : 1);
    });
    GAUDI_CHILD_REQUIRE(child.wait().exit_code == 0);
    forked_process idle([]() -> int { std::exit(0); });
    GAUDI_CHILD_REQUIRE(idle.wait().exit_code == 0);
    /* They have gone, this one not. */
    auto &folder    = ipc::shared_folder::instance();
    const auto life = folder.open_life(ipc::folder_word(parent.nonce));
    GAUDI_CHILD_REQUIRE(life && !util::has_ended(life.get()));
    return 0;
}

TEST_F(pods, that_fork_have_two_members)
{
    EXPECT_TRUE(child_passes("forks_in_a_folder", options()));
}

/* Nobody lives by a file that is no FIFO of its. */
GAUDI_CHILD(looks_for_strange_files)
{
    auto &folder = ipc::shared_folder::instance();
    GAUDI_CHILD_REQUIRE(folder.identity() != 0);
    const std::string in = line_of_parent() + "/";
    const std::string at = in + "0000000040000001.life";
    const auto is_nobody = [&] {
        return !folder.open_life(0x40000001) &&
               ipc::process_has_ended(0x40000001);
    };
    GAUDI_CHILD_REQUIRE(is_nobody());
    GAUDI_CHILD_REQUIRE(symlink("/dev/null", at.c_str()) == 0);
    GAUDI_CHILD_REQUIRE(is_nobody() && (unlink(at.c_str()) == 0));
    GAUDI_CHILD_REQUIRE(mknod(at.c_str(), S_IFREG | 0600, 0) == 0);
    GAUDI_CHILD_REQUIRE(is_nobody() && (unlink(at.c_str()) == 0));
    GAUDI_CHILD_REQUIRE(mkfifo(at.c_str(), 0600) == 0);
    GAUDI_CHILD_REQUIRE(is_nobody());
    const util::unique_fd reader(
        open(at.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    GAUDI_CHILD_REQUIRE(!ipc::process_has_ended(0x40000001));
    return 0;
}

TEST_F(pods, take_no_other_file_for_a_life)
{
    child_process looking("looks_for_strange_files", options());
    looking.write_line(own());
    expect_end(looking);
}

} // namespace gaudi::test
