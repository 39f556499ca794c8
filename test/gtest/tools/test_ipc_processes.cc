/* Processes that reach each other by gaudi_ipc, and processes that must not. */
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include "common/ability.h"
#include "common/process_state.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include <sched.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/* Protocol generation. */
class ipc_processes : public two_peers,
                      public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] environment variables(const std::string &tls) const
    {
        return {{"UCX_TLS", tls}, {"UCX_PROTO_ENABLE", GetParam()}};
    }

    /* Everything, in a few sizes. Stock UCP does RMA on device memory only over
     * a transport that serves it, or with the new protocols. */
    [[nodiscard]] static std::string traffic(bool device_rma)
    {
        return std::string("tag,am,stream,") +
               (device_rma ? "rma" : "rma-host");
    }

    /* Where the server has a variable or wrappers that the client has not. Both
     * say why, once. */
    void expect_tcp(const std::string &why, const environment &of_server,
                    const arguments &around_server,
                    const arguments &around_client = {}) const
    {
        environment all      = variables("gaudi_copy,gaudi_ipc,tcp");
        all["UCX_LOG_LEVEL"] = "info";
        const bool is_new    = (*GetParam() == 'y');
        peers_result result  = run_peers({traffic(is_new),
                                          {"few", "info"},
                                          all,
                                          {},
                                          of_server,
                                          around_server,
                                          around_client});
        for (process_result *side : {&result.client, &result.server}) {
            const auto told = lines_with(side->output, "is out of reach: ");
            ASSERT_EQ(1u, told.size()) << side->output;
            EXPECT_THAT(told[0], HasSubstr(why));
            EXPECT_THAT(told[0], HasSubstr(is_new ? "UCX  INFO" : "UCX  WARN"));
            EXPECT_THAT(told[0], HasSubstr(is_new ? "other transports move"
                                                  : "UCX_PROTO_ENABLE=y"));
            EXPECT_THAT(lanes(*side), Contains(HasSubstr("tcp/")));
            EXPECT_THAT(lanes(*side), Not(Contains(HasSubstr("gaudi_ipc"))));
            drop_lines(side->output, {"UCX  INFO", "is out of reach: "});
        }
        expect_all_sent(result);
    }

    static void drop_lines(std::string &text, const arguments &with)
    {
        std::istringstream lines(std::exchange(text, ""));
        for (std::string line; std::getline(lines, line);) {
            if (std::none_of(with.begin(), with.end(), [&](const auto &part) {
                    return line.find(part) != std::string::npos;
                })) {
                text += line + "\n";
            }
        }
    }

    /* Those of the endpoint to the other process, which is printed first. */
    static std::vector<std::string> lanes(const process_result &result)
    {
        const size_t begin = result.output.find("# UCP endpoint");
        const size_t end   = result.output.find("# UCP worker", begin);
        EXPECT_NE(std::string::npos, begin);
        EXPECT_NE(std::string::npos, end);
        return lines_with(result.output.substr(begin, end - begin), "lane[");
    }
};

/* The network between two namespaces. Their only processes hold them, and they
 * go with these, with all that is in them. */
class ipc_nodes : public ipc_processes {
protected:
    struct node {
        std::unique_ptr<process> holder;
        pid_t pid = 0;

        [[nodiscard]] arguments prefix() const
        {
            return {"nsenter", "-t", std::to_string(pid), "-n", "-m"};
        }
    };

    static node make_node()
    {
        process_options options;
        options.deadline = std::chrono::seconds(100);
        node result;
        /* With a sysfs of its own, where UCX looks for network devices. */
        result.holder = std::make_unique<process>(
            arguments{"unshare", "--net", "--mount", "--", "sh", "-c",
                      "mount -t sysfs node /sys && exec sleep 100"},
            options);
        result.pid = result.holder->pid();
        const std::string comm =
            "/proc/" + std::to_string(result.pid) + "/comm";
        EXPECT_TRUE(eventually([&] {
            return result.holder->has_ended() || (read_file(comm) == "sleep\n");
        }));
        return result;
    }

    static void in(const node &where, const arguments &command)
    {
        arguments all = where.prefix();
        all.insert(all.end(), command.begin(), command.end());
        ASSERT_TRUE(exited_with(0, run(all))) << ::testing::PrintToString(all);
    }

    void SetUp() override
    {
        GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWNET | CLONE_NEWNS, "sysfs"));
        for (node &one : nodes) {
            one = make_node();
            ASSERT_FALSE(one.holder->has_ended()) << one.holder->wait().output;
        }
        in(nodes[0], {"ip", "link", "add", "node0", "type", "veth", "peer",
                      "name", "node1", "netns", std::to_string(nodes[1].pid)});
        for (int i : {0, 1}) {
            const std::string number = std::to_string(i);
            const std::string link   = "node" + number;
            in(nodes[i], {"ip", "address", "add", "10.77.7." + number + "/31",
                          "dev", link});
            in(nodes[i], {"ip", "link", "set", link, "up"});
            in(nodes[i], {"ip", "link", "set", "lo", "up"});
        }
        /* UCX takes links that are running, which is told later. */
        for (int i : {0, 1}) {
            arguments look = nodes[i].prefix();
            look.insert(look.end(),
                        {"cat", "/sys/class/net/node" + std::to_string(i) +
                                    "/operstate"});
            EXPECT_TRUE(eventually([&] { return run(look).output == "up\n"; }));
        }
    }

    node nodes[2];
};

std::string name_of(const ::testing::TestParamInfo<const char *> &info)
{
    return std::string("proto_") + info.param;
}

constexpr char ipc[]         = "gaudi_copy,gaudi_ipc";
constexpr char ipc_and_tcp[] = "gaudi_copy,gaudi_ipc,tcp";

} // namespace

/* UCP 1.13 refuses such endpoints where no transport of the list is on the
 * network device; then it takes the best of all. */
TEST_P(ipc_processes, connect_by_socket_address)
{
    for (const arguments &more : std::vector<arguments>{{}, {"peer-errors"}}) {
        arguments options{"few", "sockaddr", "info"};
        options.insert(options.end(), more.begin(), more.end());
        const peers_result result =
            run_peers({traffic(true), options, variables(ipc_and_tcp)});
        expect_all_sent(result);
        for (const process_result &side : {result.client, result.server}) {
            EXPECT_THAT(lanes(side), Contains(HasSubstr("gaudi_ipc")));
            EXPECT_THAT(lanes(side), Not(Contains(HasSubstr("tcp/"))));
        }
    }
}

TEST_P(ipc_processes, are_told_what_a_listener_lacks)
{
    const peers_result result =
        run_peers({traffic(true), {"few", "sockaddr"}, variables(ipc)});
    EXPECT_THAT(result.server.output,
                HasSubstr("over UCX_TLS=gaudi_cpy,gaudi_ipc alone; add tcp"));
    EXPECT_EQ(1u, lines_with(result.server.output, "ucx-gaudi: ").size());
}

TEST_P(ipc_processes, reach_memory_whose_dmabufs_its_process_closed)
{
    expect_all_sent(
        run_peers({"rma", {"few"}, variables(ipc), {"close-dmabufs"}}));
}

TEST_P(ipc_processes, need_no_common_parent)
{
    const arguments other_session{"setsid", "--fork", "--wait"};
    expect_all_sent(run_peers({traffic(true),
                               {"few"},
                               variables(ipc),
                               {},
                               {},
                               other_session,
                               other_session}));
}

TEST_P(ipc_processes, of_another_box_are_left_to_tcp)
{
    expect_tcp("it is in another box of cards",
               {{"HLTHUNK_EMU_NODE",
                 "other-" + std::to_string(getpid()) + "-" + GetParam()}},
               {});
}

TEST_P(ipc_processes, of_another_process_namespace_are_left_to_tcp)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWPID | CLONE_NEWNS, "proc"));
    const arguments elsewhere{"unshare",      "--pid",        "--fork",
                              "--kill-child", "--mount-proc", "--"};
    expect_tcp("it is in another PID namespace", {}, elsewhere);
}

/* As containers that were told to share the host's. */
TEST_P(ipc_processes, of_containers_with_common_processes_and_network)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS));
    const arguments container{"unshare", "--mount", "--ipc", "--uts", "--"};
    const peers_result result = run_peers({traffic(true),
                                           {"few", "info"},
                                           variables(ipc),
                                           {},
                                           {},
                                           container,
                                           container});
    expect_all_sent(result);
    for (const process_result &side : {result.client, result.server}) {
        EXPECT_THAT(lanes(side), Contains(HasSubstr("gaudi_ipc")));
    }
}

TEST_P(ipc_processes, of_another_user_namespace_are_left_to_tcp)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER));
    const arguments elsewhere{"unshare", "--user", "--map-root-user", "--"};
    expect_tcp("it is in another user namespace", {}, elsewhere);
}

/* The client has fewer rights than the server, which it then may not look
 * into: the kernel refuses it the server's files and host memory. */
TEST_P(ipc_processes, reach_device_memory_without_the_right_to_look)
{
    GAUDI_SKIP_IF(why_no_fewer_rights());
    const peers_result result =
        run_peers({"tag,am,stream",
                   {"few", "info"},
                   variables(ipc),
                   {},
                   {},
                   {},
                   {"setpriv", "--bounding-set", "-sys_ptrace", "--"}});
    expect_all_sent(result);
    for (const process_result &side : {result.client, result.server}) {
        EXPECT_THAT(lanes(side), Contains(HasSubstr("gaudi_ipc")));
    }
}

TEST_P(ipc_processes, without_a_common_transport_are_told_so)
{
    const peers_result result =
        run_peers({"tag",
                   {"few"},
                   variables(ipc),
                   {},
                   {{"HLTHUNK_EMU_NODE",
                     "lone-" + std::to_string(getpid()) + "-" + GetParam()}}});
    /* Whoever notices second may be stopped before it is told. */
    const process_result &first =
        (result.client.signal == 0) ? result.client : result.server;
    EXPECT_TRUE(exited_with(1, first));
    EXPECT_THAT(first.output, HasSubstr("unreachable"));
    EXPECT_THAT(lines_with(first.output, "UCX_TLS has no other way there"),
                ElementsAre(AllOf(HasSubstr("UCX  WARN"),
                                  HasSubstr("in another box of cards"))));
}

INSTANTIATE_TEST_SUITE_P(with, ipc_processes, ::testing::ValuesIn(protocols()),
                         name_of);

TEST_P(ipc_nodes, talk_over_tcp)
{
    expect_tcp("it is in another network namespace",
               {{"HLTHUNK_EMU_NODE",
                 "node1-" + std::to_string(getpid()) + "-" + GetParam()}},
               nodes[1].prefix(), nodes[0].prefix());
}

/* Software cards belong to their network namespace. */
TEST_P(ipc_nodes, talk_over_tcp_in_one_box_too)
{
    expect_tcp("it is in another network namespace", {}, nodes[1].prefix(),
               nodes[0].prefix());
}

/* As containers are by default. */
TEST_P(ipc_nodes, of_other_processes_are_told_both)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWPID | CLONE_NEWNS, "proc"));
    arguments container = nodes[1].prefix();
    container.insert(container.end(), {"unshare", "--pid", "--fork",
                                       "--kill-child", "--mount-proc", "--"});
    expect_tcp("it is in another network and PID namespace than this process",
               {}, container, nodes[0].prefix());
}

INSTANTIATE_TEST_SUITE_P(with, ipc_nodes, ::testing::ValuesIn(protocols()),
                         name_of);

} // namespace gaudi::test
