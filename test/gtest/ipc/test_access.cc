/* SPDX-License-Identifier: BSD-3-Clause */
/* Who gets a link to whom, and why not. */
#include "gtest/ipc/fixture.h"

#include "common/ability.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/address.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/file_mapping.h"

#include <cstring>

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::test {

using ipc::interface_address;
using ipc::machine_address;
using ::testing::HasSubstr;
using util::unique_fd;

namespace {

using reach = ipc_test;

/* Connect as who means no good does: without a look at who listens. */
unique_fd connect_raw(const interface_address &to)
{
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int text = std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
                                   "ucx-gaudi/%016lx",
                                   static_cast<unsigned long>(to.process));
    unique_fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<sockaddr *>(&name),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       static_cast<size_t>(text))) != 0) {
        fd.reset();
    }
    return fd;
}

/* Whether a process answers with nothing, not even with why, but closes. */
bool gives_nothing(const interface_address &to)
{
    const unique_fd socket = connect_raw(to);
    const unique_fd file =
        util::make_lasting_file("gtest", ipc::segment_bytes(0, 0));
    const ipc::hello_message hello{.version     = ipc::wire_version,
                                   .process     = to.process,
                                   .interface   = to.number,
                                   .pid         = 1,
                                   .chunk_bytes = 0,
                                   .chunks      = 0};
    char answer[64];
    if (!socket) {
        return false;
    }
    /* It may be closed by now. */
    (void)ipc::send_message(socket.get(), &hello, sizeof(hello), file.get());
    if (!is_readable(socket.get())) {
        return false;
    }
    ssize_t length = recv(socket.get(), answer, sizeof(answer), 0);
    return (length == 0) || ((length < 0) && (errno == ECONNRESET));
}

/* Where a process is, and where its interface. */
struct whereabouts {
    machine_address machine;
    interface_address interface;
};

int be_there()
{
    inbox box;
    tell_parent(to_line(whereabouts{ipc::own_machine(), box.address()}));
    wait_for_parent();
    GAUDI_CHILD_REQUIRE(count_links() == 0);
    return 0;
}

} // namespace

TEST_F(reach, is_to_its_own_kind_alone_and_says_why)
{
    const machine_address own = ipc::own_machine();
    EXPECT_EQ("", ipc::find_obstacle(own).why);
    using edit                                   = void (*)(machine_address &);
    const std::pair<edit, const char *> others[] = {
        {[](auto &other) { other.system ^= 1; }, "another machine"},
        {[](auto &other) { other.box ^= 1; }, "another box"},
        {[](auto &other) { other.net_namespace ^= 1; }, "network namespace"},
        {[](auto &other) { other.user_namespace ^= 1; }, "user namespace"},
        {[](auto &other) {
             other.net_namespace ^= 1;
             other.user_namespace ^= 1;
         },
         "network and user namespace, and UCX_GAUDI_IPC_DIR"},
        {[](auto &other) { other.uid += 1; }, "it belongs to user"},
        {[](auto &other) { other.version += 1; }, "it speaks version"}};
    for (const auto &[change, why] : others) {
        machine_address other = own;
        change(other);
        EXPECT_THAT(ipc::find_obstacle(other).why, HasSubstr(why));
    }
}

GAUDI_CHILD(is_there)
{
    return be_there();
}

TEST_F(reach, is_to_living_processes_stopped_ones_too)
{
    child_process server("is_there");
    whereabouts there{};
    ASSERT_TRUE(from_line(server.read_line(), there));
    EXPECT_TRUE(ipc::is_reachable(there.machine, there.interface));
    server.stop();
    EXPECT_TRUE(ipc::is_reachable(there.machine, there.interface));
    {
        const no_new_descriptors limit;
        EXPECT_TRUE(ipc::is_reachable(there.machine, there.interface));
    }
    server.kill(SIGKILL);
    (void)server.wait();
    EXPECT_FALSE(ipc::is_reachable(there.machine, there.interface));
}

/* --- users ----------------------------------------------------------------*/

GAUDI_CHILD(is_there_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    return be_there();
}

/* Whatever the address says. */
TEST_F(reach, is_not_to_other_users)
{
    GAUDI_SKIP_IF(why_no_other_user());
    child_process server("is_there_as_another_user");
    whereabouts there{};
    ASSERT_TRUE(from_line(server.read_line(), there));
    EXPECT_THAT(ipc::find_obstacle(there.machine).why, HasSubstr("12345"));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, why_no_link(there.interface));
    EXPECT_FALSE(ipc::is_reachable(ipc::own_machine(), there.interface));
    (void)take_logs();
    EXPECT_TRUE(gives_nothing(there.interface));
    server.write_line("");
    expect_end(server);
}

GAUDI_CHILD(asks_as_another_user)
{
    GAUDI_CHILD_REQUIRE(become_another_user());
    const auto there = from_parent<interface_address>();
    GAUDI_CHILD_REQUIRE(why_no_link(there) == UCS_ERR_UNREACHABLE);
    for (unsigned i = 0; i < 10; ++i) {
        GAUDI_CHILD_REQUIRE(gives_nothing(there));
    }
    return 0;
}

TEST_F(reach, is_not_for_other_users)
{
    GAUDI_SKIP_IF(why_no_other_user());
    inbox box;
    expect_success("asks_as_another_user", box.address());
    EXPECT_EQ(0u, count_links());
}

/* In a user namespace where nobody else is mapped, as the user for whom all
 * others are taken then. */
GAUDI_CHILD(is_there_as_everybody)
{
    GAUDI_CHILD_REQUIRE(enter_namespaces(CLONE_NEWUSER));
    GAUDI_CHILD_REQUIRE(map_user("65534"));
    GAUDI_CHILD_REQUIRE(geteuid() == 65534);
    return be_there();
}

TEST_F(reach, is_not_for_users_that_are_not_mapped)
{
    GAUDI_SKIP_IF(why_no_other_user());
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER));
    child_process server("is_there_as_everybody");
    whereabouts there{};
    ASSERT_TRUE(from_line(server.read_line(), there));
    expect_success("asks_as_another_user", there.interface);
    EXPECT_TRUE(gives_nothing(there.interface));
    server.write_line("");
    expect_end(server);
}

/* --- namespaces -----------------------------------------------------------*/

} // namespace gaudi::test
