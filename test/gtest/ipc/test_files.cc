/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process it is, and how its files are got. */
#include "gtest/ipc/fixture.h"

#include "common/ability.h"
#include "common/descriptor.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/process/datagram.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/process/reachability.h"
#include "uct/gaudi/ipc/process/remote_process.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::test {

using gaudi::ipc::connect_to_service;
using gaudi::ipc::datagram;
using gaudi::ipc::file_offer;
using gaudi::ipc::file_pair;
using gaudi::ipc::file_ref;
using gaudi::ipc::file_service;
using gaudi::ipc::machine_address;
using gaudi::ipc::open_answers;
using gaudi::ipc::open_client;
using gaudi::ipc::own_machine;
using gaudi::ipc::own_process;
using gaudi::ipc::process_id;
using gaudi::ipc::remote_process;
using gaudi::ipc::service_name;
using gaudi::ipc::wire_reply;
using gaudi::ipc::wire_request;
using gaudi::util::unique_fd;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

namespace {

constexpr char content[] = "a file of another process";

util::unique_fd make_file()
{
    util::unique_fd file(memfd_create("gtest-ipc", MFD_CLOEXEC));
    if (write(file.get(), content, sizeof(content)) != sizeof(content)) {
        file.reset();
    }
    return file;
}

bool has_content(int fd)
{
    char text[sizeof(content)] = {};
    return (pread(fd, text, sizeof(text), 0) == sizeof(text)) &&
           (std::string(text) == content);
}

/* What a child that has files tells. */
struct offer {
    process_id process;
    file_ref registered;
    file_ref removed;
    file_ref made;     /* for each who asks */
    file_ref replaced; /* its descriptor stands for another file */
};

class files : public ipc_test {
protected:
    /* A child that has files, and ends when it is told. */
    void start(const std::string &name = "offers_files")
    {
        child = std::make_unique<child_process>(name);
        ASSERT_TRUE(from_line(child->read_line(), offered));
        ASSERT_EQ(UCS_OK, remote_process::open(offered.process, process));
    }

    ucs_status_t get(const file_ref &file)
    {
        file_pair both;
        const ucs_status_t status = process->get_files(file, both);
        EXPECT_EQ(status == UCS_OK, bool(both[0]));
        EXPECT_FALSE(both[1]);
        got = std::move(both[0]);
        return status;
    }

    std::unique_ptr<child_process> child;
    offer offered{};
    std::shared_ptr<remote_process> process;
    util::unique_fd got;
};

/* Replaces the file behind a descriptor. */
void replace(int fd)
{
    const util::unique_fd other(memfd_create("gtest-other", MFD_CLOEXEC));
    dup2(other.get(), fd);
}

bool add(const unique_fd &file, file_ref &file_p)
{
    file_offer what;
    what.fds[0] = file.get();
    return file_service::add(std::move(what), file_p) == UCS_OK;
}

bool add_made(file_ref &file_p)
{
    file_offer what;
    what.open = [](unique_fd &fd_p) {
        fd_p = make_file();
        return UCS_OK;
    };
    return file_service::add(std::move(what), file_p) == UCS_OK;
}

int offer_files()
{
    const util::unique_fd one   = make_file();
    const util::unique_fd two   = make_file();
    const util::unique_fd three = make_file();
    offer what{};
    what.process = own_process();
    GAUDI_CHILD_REQUIRE(add(one, what.registered) && add(two, what.removed) &&
                        add_made(what.made) && add(three, what.replaced));
    file_service::remove(what.removed);
    replace(three.get());
    tell_parent(to_line(what));
    wait_for_parent();
    return 0;
}

/* Goes on in a user namespace whose ids are those around it: a process outside
 * has to say so. */
bool enter_user_namespace_of_all_ids()
{
    int ends[2];
    if (!go_on_as_child(fork()) || (pipe2(ends, O_CLOEXEC) != 0)) {
        return false;
    }
    const unique_fd ready(ends[0]);
    unique_fd tell(ends[1]);
    const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr,
                               nullptr, nullptr, nullptr);
    char byte        = 0;
    if (child > 0) {
        const std::string there = "/proc/" + std::to_string(child);
        for (const char *map : {"/uid_map", "/gid_map"}) {
            if (!write_text((there + map).c_str(),
                            read_file("/proc/self" + std::string(map)))) {
                _exit(1);
            }
        }
        (void)!write(tell.get(), &byte, sizeof(byte));
    }
    tell.reset();
    return go_on_as_child(child) &&
           (read(ready.get(), &byte, sizeof(byte)) == sizeof(byte));
}

/* Ask a service for a file that was offered, and for nothing else: whoever does
 * it. @return Where the answer comes. */
unique_fd ask_service(const offer &what)
{
    unique_fd theirs;
    unique_fd answers      = open_answers(theirs);
    const unique_fd client = open_client();

    wire_request wanted{gaudi::ipc::request_magic,
                        7,
                        {0, 0, static_cast<uint32_t>(getpid()), 0},
                        what.registered,
                        gaudi::ipc::wire_version,
                        0};
    datagram question(&wanted, sizeof(wanted));
    question.add_credentials();
    question.add_descriptor(theirs.get());
    return (connect_to_service(client.get(),
                               service_name(what.process.nonce)) &&
            question.send(client.get()))
               ? std::move(answers)
               : unique_fd();
}

/* @return What the service says. */
ucs_status_t answer_of_service(int socket, int timeout_ms)
{
    pollfd there{socket, POLLIN, 0};
    wire_reply what{};
    datagram answer(&what, sizeof(what));
    if (poll(&there, 1, timeout_ms) != 1) {
        return UCS_ERR_TIMED_OUT;
    }
    if (answer.receive(socket) != sizeof(what)) {
        return UCS_ERR_IO_ERROR;
    }
    return answer.descriptors[0] ? UCS_OK
                                 : static_cast<ucs_status_t>(what.status);
}

constexpr int deadline_ms = 20'000;

/* A child asks the service of the test's other child. */
int expect_refusal(const offer &what)
{
    const unique_fd answers = ask_service(what);
    GAUDI_CHILD_REQUIRE(answers);
    GAUDI_CHILD_REQUIRE(answer_of_service(answers.get(), deadline_ms) ==
                        UCS_ERR_REJECTED);
    return 0;
}

} // namespace

GAUDI_CHILD(offers_files)
{
    return offer_files();
}

TEST(machine, reaches_its_own_kind_only_and_says_why)
{
    const machine_address own = own_machine();
    EXPECT_EQ("", gaudi::ipc::why_unreachable(own));
    using edit                                   = void (*)(machine_address &);
    const std::pair<edit, const char *> others[] = {
        {[](auto &other) { other.system ^= 1; }, "another machine"},
        {[](auto &other) { other.box ^= 1; }, "another box"},
        {[](auto &other) { other.net_namespace ^= 1; }, "network namespace"},
        {[](auto &other) { other.pid_namespace ^= 1; }, "PID namespace"},
        {[](auto &other) { other.user_namespace ^= 1; }, "user namespace"},
        {[](auto &other) {
             other.net_namespace ^= 1;
             other.pid_namespace ^= 1;
         },
         "UCX_GAUDI_IPC_DIR"},
        {[](auto &other) { other.uid += 1; }, "user"},
        {[](auto &other) { other.version += 1; }, "version"}};
    for (const auto &[change, why] : others) {
        machine_address other = own;
        change(other);
        EXPECT_THAT(gaudi::ipc::why_unreachable(other), HasSubstr(why));
    }
}

TEST_F(files, belong_to_one_process_of_all_with_its_pid)
{
    start();
    EXPECT_TRUE(process->is_alive());
    EXPECT_FALSE(process->is_self());

    std::shared_ptr<remote_process> same;
    EXPECT_EQ(UCS_OK, remote_process::open(offered.process, same));
    EXPECT_EQ(process, same);

    process_id earlier = offered.process;
    --earlier.start_time;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, remote_process::open(earlier, same));

    child->kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return !process->is_alive(); }));
    same.reset();
    child.reset(); /* reaps it */
    EXPECT_EQ(UCS_ERR_UNREACHABLE, get(offered.registered));
    process.reset();
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              remote_process::open(offered.process, process));
}

TEST_F(files, of_the_own_process_are_duplicated)
{
    ASSERT_EQ(UCS_OK, remote_process::open(own_process(), process));
    EXPECT_TRUE(process->is_self());
    const util::unique_fd file = make_file();
    file_ref ref{};
    ASSERT_TRUE(add(file, ref));
    ASSERT_EQ(UCS_OK, get(ref));
    EXPECT_NE(file.get(), got.get());
    EXPECT_TRUE(has_content(got.get()));

    file_ref made{};
    ASSERT_TRUE(add_made(made));
    EXPECT_EQ(UCS_OK, get(made));
    EXPECT_TRUE(has_content(got.get()));
    file_service::remove(made);
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(made));

    replace(file.get());
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(ref));
    file_service::remove(ref);
}

TEST_F(files, never_give_another_one)
{
    start();
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(offered.removed));
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(offered.replaced));
    file_ref never = offered.registered;
    ++never.name;
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(never));
}

TEST_F(files, are_for_those_who_know_the_token)
{
    start();
    ASSERT_EQ(UCS_OK, get(offered.registered));
    EXPECT_TRUE(has_content(got.get()));
    EXPECT_EQ(FD_CLOEXEC, fcntl(got.get(), F_GETFD));
    for (const uint64_t bit : {uint64_t{1}, uint64_t{1} << 63}) {
        file_ref guess = offered.registered;
        guess.name ^= bit;
        EXPECT_EQ(UCS_ERR_NO_ELEM, get(guess));
        guess = offered.registered;
        guess.secret ^= bit;
        EXPECT_EQ(UCS_ERR_NO_ELEM, get(guess));
    }
    file_ref guess = offered.registered;
    guess.secret   = 0;
    EXPECT_EQ(UCS_ERR_NO_ELEM, get(guess));
}

TEST_F(files, of_a_process_that_does_not_answer_are_not_waited_for)
{
    start();
    remote_process::set_timeout(0.1);
    child->stop();
    const auto begin = steady_clock::now();
    EXPECT_EQ(UCS_ERR_TIMED_OUT, get(offered.registered));
    EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(100));

    /* More than fits into its queue. */
    for (unsigned i = 0; i < 700; ++i) {
        remote_process::set_timeout(i < 699 ? 0 : 0.1);
        ASSERT_EQ(UCS_ERR_TIMED_OUT, get(offered.registered));
    }

    /* Its end is noticed at once. */
    remote_process::set_timeout(1000);
    std::thread killer([&, waiter = gettid()] {
        EXPECT_TRUE(eventually([&] { return is_blocked(waiter); }));
        child->kill(SIGKILL);
    });
    EXPECT_EQ(UCS_ERR_UNREACHABLE, get(offered.registered));
    killer.join();
}

TEST_F(files, come_after_nonsense_was_sent_to_the_service)
{
    start();
    EXPECT_TRUE(read_file("/proc/net/unix").find("@ucx-gaudi-ipc/") !=
                std::string::npos);
    ASSERT_EQ(UCS_OK, get(offered.registered));

    /* The layout of a request is not known here: bytes of all lengths. */
    char name[64];
    const int length =
        std::snprintf(name, sizeof(name), "ucx-gaudi-ipc/%016lx",
                      static_cast<unsigned long>(offered.process.nonce));
    sockaddr_un peer{};
    peer.sun_family = AF_UNIX;
    std::memcpy(peer.sun_path + 1, name, static_cast<size_t>(length));
    const util::unique_fd socket(
        ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0,
              connect(socket.get(), reinterpret_cast<sockaddr *>(&peer),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                             1 + static_cast<size_t>(length))));
    const std::string nonsense(200, '\x5a');
    for (size_t size = 0; size <= nonsense.size(); ++size) {
        ASSERT_EQ(static_cast<ssize_t>(size),
                  send(socket.get(), nonsense.data(), size, 0));
    }
    const util::unique_fd file = make_file();
    ASSERT_TRUE(send_descriptor(socket.get(), file.get()));
    EXPECT_EQ(UCS_OK, get(offered.registered));
}

GAUDI_CHILD(offers_files_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    GAUDI_CHILD_REQUIRE(prctl(PR_SET_DUMPABLE, 0) == 0);
    return offer_files();
}

GAUDI_CHILD(gets_a_file_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    /* The other one is to see who this is. */
    GAUDI_CHILD_REQUIRE(prctl(PR_SET_DUMPABLE, 1) == 0);
    const auto offered = from_parent<offer>();
    /* It is not by a debugger's rights that it gets them. */
    const unique_fd pidfd = gaudi::util::open_pidfd(offered.process.pid);
    GAUDI_CHILD_REQUIRE(syscall(SYS_pidfd_getfd, pidfd.get(), 0, 0) < 0);
    GAUDI_CHILD_REQUIRE(errno == EPERM);
    std::shared_ptr<remote_process> process;
    GAUDI_CHILD_REQUIRE(remote_process::open(offered.process, process) ==
                        UCS_OK);
    file_pair got;
    GAUDI_CHILD_REQUIRE(process->get_files(offered.registered, got) == UCS_OK);
    GAUDI_CHILD_REQUIRE(has_content(got[0].get()));
    GAUDI_CHILD_REQUIRE(process->get_files(offered.removed, got) ==
                        UCS_ERR_NO_ELEM);
    return 0;
}

GAUDI_CHILD(gets_no_file_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    const auto offered = from_parent<offer>();
    remote_process::set_timeout(0.1);
    std::shared_ptr<remote_process> process;
    GAUDI_CHILD_REQUIRE(remote_process::open(offered.process, process) ==
                        UCS_OK);
    file_pair got;
    GAUDI_CHILD_REQUIRE(process->get_files(offered.registered, got) != UCS_OK);
    return 0;
}

TEST_F(files, come_where_the_kernel_forbids_pidfd_getfd)
{
    GAUDI_SKIP_IF(why_no_other_user());
    child_process server("offers_files_as_another_user");
    ASSERT_TRUE(from_line(server.read_line(), offered));
    expect_success("gets_a_file_as_another_user", offered);
}

TEST_F(files, are_not_for_other_users)
{
    GAUDI_SKIP_IF(why_no_other_user());
    start();
    expect_success("gets_no_file_as_another_user", offered);
}

/* In a user namespace where nobody else is mapped, as the user for whom all
 * others are taken then. */
GAUDI_CHILD(offers_files_as_everybody)
{
    GAUDI_CHILD_REQUIRE(enter_namespaces(CLONE_NEWUSER));
    GAUDI_CHILD_REQUIRE(map_user("65534"));
    GAUDI_CHILD_REQUIRE(geteuid() == 65534);
    return offer_files();
}

GAUDI_CHILD(asks_and_gets_no_answer)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    const auto offered = from_parent<offer>();
    for (int i = 0; i < 10; ++i) {
        const unique_fd answers = ask_service(offered);
        GAUDI_CHILD_REQUIRE(answers);
        /* It ends without one. */
        GAUDI_CHILD_REQUIRE(answer_of_service(answers.get(), deadline_ms) ==
                            UCS_ERR_IO_ERROR);
    }
    return 0;
}

TEST_F(files, are_not_for_users_that_are_not_mapped)
{
    GAUDI_SKIP_IF(why_no_other_user());
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER));
    start("offers_files_as_everybody");
    expect_success("asks_and_gets_no_answer", offered);
}

GAUDI_CHILD(asks_in_another_user_namespace)
{
    const auto offered = from_parent<offer>();
    GAUDI_CHILD_REQUIRE(enter_namespaces(CLONE_NEWUSER));
    GAUDI_CHILD_REQUIRE(map_user("0"));
    return expect_refusal(offered);
}

/* Its map reads as that of the namespace around it. */
GAUDI_CHILD(asks_in_a_user_namespace_with_the_same_map)
{
    const auto offered    = from_parent<offer>();
    const std::string map = read_file("/proc/self/uid_map");
    GAUDI_CHILD_REQUIRE(enter_user_namespace_of_all_ids());
    GAUDI_CHILD_REQUIRE(read_file("/proc/self/uid_map") == map);
    return expect_refusal(offered);
}

GAUDI_CHILD(asks_in_another_pid_namespace)
{
    const auto offered = from_parent<offer>();
    GAUDI_CHILD_REQUIRE(enter_namespaces(CLONE_NEWPID));
    return expect_refusal(offered);
}

/* What another container of the user is. */
TEST_F(files, are_not_for_other_user_namespaces)
{
    GAUDI_SKIP_IF(why_no_other_user());
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER));
    start();
    expect_success("asks_in_another_user_namespace", offered);
    expect_success("asks_in_a_user_namespace_with_the_same_map", offered);
}

TEST_F(files, are_not_for_other_pid_namespaces)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWPID));
    start();
    expect_success("asks_in_another_pid_namespace", offered);
}

/* Its pid may be another process's when it is looked at. */
TEST_F(files, are_not_for_who_has_asked_and_ended)
{
    start();
    child->stop();
    int ends[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
    const unique_fd own(ends[0]);
    const unique_fd askers(ends[1]);
    forked_process asker([&] {
        const unique_fd answers = ask_service(offered);
        return answers && send_descriptor(askers.get(), answers.get()) ? 0 : 1;
    });
    ASSERT_EQ(0, asker.wait().exit_code);
    const unique_fd answers(receive_descriptor(own.get()));
    child->kill(SIGCONT);
    EXPECT_EQ(UCS_ERR_REJECTED, answer_of_service(answers.get(), deadline_ms));
}

} // namespace gaudi::test
