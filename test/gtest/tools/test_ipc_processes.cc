/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that reach each other by gaudi_ipc, and processes that must not. */
#include "gtest/tools/perftest.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include "common/ability.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <regex>
#include <sstream>
#include <utility>

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char ipc[]         = "gaudi_copy,gaudi_ipc";
constexpr char ipc_and_tcp[] = "gaudi_copy,gaudi_ipc,tcp";
const arguments no_processes = {"unshare",      "--pid",        "--fork",
                                "--kill-child", "--mount-proc", "--"};

/* Protocol generation. */
class ipc_processes : public two_peers,
                      public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] static environment variables(const std::string &tls)
    {
        return over(tls, GetParam());
    }

    /* Of both sides, in a few sizes, over gaudi_ipc alone. */
    [[nodiscard]] peers_result over_ipc(const std::string &what,
                                        const arguments &around_server,
                                        const arguments &around_client) const
    {
        peers_case whole{what, {"info"}, variables(ipc)};
        whole.server_prefix = around_server;
        whole.client_prefix = around_client;
        return run_peers(whole);
    }

    static void expect_ipc(const peers_result &result)
    {
        expect_all_sent(result);
        for (const process_result &side : {result.client, result.server}) {
            EXPECT_THAT(lanes(side), Contains(HasSubstr("gaudi_ipc")));
        }
    }

    /* A box that nobody else is in. */
    static environment box(const std::string &name)
    {
        return {{"HLTHUNK_EMU_NODE",
                 name + "-" + std::to_string(getpid()) + "-" + GetParam()}};
    }

    /* Everything, in a few sizes. Stock UCP does RMA on device memory only over
     * a transport that serves it, or with the new protocols. */
    [[nodiscard]] static std::string traffic(bool device_rma)
    {
        return std::string("tag,am,stream,") +
               (device_rma ? "rma" : "rma-host");
    }

    /* Where the server has a variable or wrappers that the client has not. Both
     * warn once, when they have device memory, and say how to fix it. */
    void expect_tcp(const std::string &why, const environment &of_server,
                    const arguments &around_server,
                    const arguments &around_client = {}) const
    {
        environment all      = variables(ipc_and_tcp);
        all["UCX_LOG_LEVEL"] = "info";
        const bool is_new    = (*GetParam() == 'y');
        peers_result result  = run_peers({traffic(is_new),
                                          {"info"},
                                          all,
                                          of_server,
                                          around_server,
                                          around_client});
        for (process_result *side : {&result.client, &result.server}) {
            const auto told = lines_with(side->output, "is out of reach: ");
            EXPECT_THAT(told, SizeIs(::testing::Le(2u))) << side->output;
            ASSERT_EQ(1u, lines_with(side->output, "UCX  WARN").size())
                << side->output;
            EXPECT_THAT(told.back(), AllOf(HasSubstr("UCX  WARN"),
                                           HasSubstr(why), HasSubstr(" (")));
            EXPECT_THAT(told.back(), HasSubstr(is_new ? "many times slower"
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

/* As two pods of a node. */
class ipc_pods : public ipc_processes {
protected:
    void SetUp() override
    {
        GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces, "proc"));
        ASSERT_EQ(0, mkdir(folder.path("cards").c_str(), 0700));
    }

    /* What both know of the folder, and what the cards of its box do. */
    [[nodiscard]] environment sharing() const
    {
        return {{"UCX_GAUDI_IPC_DIR", folder.path("")},
                {"HLTHUNK_EMU_NODE", folder.path("cards")}};
    }

    scratch_directory folder;
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
        const arguments all = joined(where.prefix(), command);
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
            const arguments look =
                joined(nodes[i].prefix(),
                       {"cat", "/sys/class/net/node" + std::to_string(i) +
                                   "/operstate"});
            EXPECT_TRUE(eventually([&] { return run(look).output == "up\n"; }));
        }
    }

    /* A container of a manifest. */
    struct container {
        arguments command;
        environment variables;
    };
    using pod_pair = std::vector<container>;

    /* A pair of each block of a page. */
    static std::vector<pod_pair> manifests(const std::string &page)
    {
        std::vector<pod_pair> result;
        std::istringstream lines(page);
        const std::regex command(" *command: \\[(.*)\\]");
        const std::regex variable(
            " *- \\{name: (\\w+), value: \"?([^\"}]*)\"?\\}");
        std::smatch found;
        for (std::string line; std::getline(lines, line);) {
            if (line == "```yaml") {
                result.emplace_back();
            } else if (std::regex_match(line, found, command)) {
                const std::string text =
                    std::regex_replace(found.str(1), std::regex("[,\"]"), "");
                result.back().push_back({words(text), {}});
            } else if (std::regex_match(line, found, variable)) {
                result.back().back().variables[found[1]] = found[2];
            }
        }
        return result;
    }

    /* The server's, and then the client's, each with processes of its own. */
    void run_pods(const pod_pair &both, const node &first, const node &second,
                  const std::string &server_address) const
    {
        const scratch_directory folder;
        ASSERT_EQ(0, mkdir(folder.path("cards").c_str(), 0700));
        ASSERT_EQ(2u, both.size());
        const auto start = [&](const node &where, const container &what) {
            environment all = what.variables;
            EXPECT_EQ("/ucx", all["UCX_GAUDI_IPC_DIR"]);
            all["UCX_GAUDI_IPC_DIR"] = folder.path("");
            all["HLTHUNK_EMU_NODE"]  = folder.path("cards");
            arguments command(what.command.begin() + 2, what.command.end());
            if (&what == &both[1]) {
                command.back() = server_address;
            }
            const arguments apart{"unshare",      "--ipc",  "--uts",
                                  "--pid",        "--fork", "--kill-child",
                                  "--mount-proc", "--"};
            return std::make_unique<process>(
                joined(joined(where.prefix(), apart),
                       under_launcher(joined(command, no_mpi_job()))),
                with(over("", GetParam(), all)));
        };
        const auto server  = start(first, both[0]);
        const auto listens = joined(
            first.prefix(), {"grep", "-q", ":3419 .* 0A ", "/proc/net/tcp"});
        EXPECT_TRUE(eventually([&] {
            return server->has_ended() || (run(listens).exit_code == 0);
        }));
        const process_result client = start(second, both[1])->wait();
        EXPECT_TRUE(is_quiet_success(client, {"Final:"}));
        EXPECT_TRUE(is_quiet_success(server->wait()));
    }

    node nodes[2];
};

} // namespace

/* UCP 1.13 refuses such endpoints where no transport of the list is on the
 * network device; then it takes the best of all. */
TEST_P(ipc_processes, connect_by_socket_address)
{
    for (const arguments &more : std::vector<arguments>{{}, {"peer-errors"}}) {
        const peers_result result =
            run_peers({traffic(true), joined({"sockaddr", "info"}, more),
                       variables(ipc_and_tcp)});
        expect_ipc(result);
        for (const process_result &side : {result.client, result.server}) {
            EXPECT_THAT(lanes(side), Not(Contains(HasSubstr("tcp/"))));
        }
    }
}

TEST_P(ipc_processes, of_another_box_are_left_to_tcp)
{
    expect_tcp("another box", box("other"), {});
}

/* As those of one pod, whose software cards are one box because a folder says
 * so. */
TEST_P(ipc_processes, of_containers_with_a_common_network)
{
    GAUDI_SKIP_IF(why_no_namespaces(
        CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS, "proc"));
    /* And without a common parent. */
    const arguments container = joined(
        words("setsid --fork --wait unshare --ipc --uts --"), no_processes);
    const scratch_directory cards;
    environment all         = variables(ipc);
    all["HLTHUNK_EMU_NODE"] = cards.path(".");
    peers_case whole{traffic(true), {"info"}, all};
    whole.server_prefix = container;
    whole.client_prefix = container;
    expect_ipc(run_peers(whole));
}

TEST_P(ipc_processes, of_another_user_namespace_are_left_to_tcp)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWUSER));
    const arguments elsewhere{"unshare", "--user", "--map-root-user", "--"};
    expect_tcp("user namespace", {}, elsewhere);
}

/* The client has fewer rights than the server, which it then may not look
 * into: the kernel refuses it the server's files and host memory. */
TEST_P(ipc_processes, reach_device_memory_without_the_right_to_look)
{
    GAUDI_SKIP_IF(why_no_fewer_rights());
    expect_ipc(over_ipc("tag,am,stream", {},
                        {"setpriv", "--bounding-set", "-sys_ptrace", "--"}));
}

TEST_P(ipc_processes, without_a_common_transport_are_told_so)
{
    const peers_result result =
        run_peers({"tag", {}, variables(ipc), box("lone")});
    /* Whoever notices second may be stopped before it is told. */
    const process_result &first =
        (result.client.signal == 0) ? result.client : result.server;
    EXPECT_TRUE(exited_with(1, first));
    EXPECT_THAT(first.output, HasSubstr("unreachable"));
    EXPECT_THAT(
        lines_with(first.output, "UCX_TLS has no other way there"),
        ElementsAre(AllOf(HasSubstr("UCX  WARN"), HasSubstr("another box"))));
}

/* Data by the cards, which are slow, and a flag by shared memory. UCP does not
 * wait in 1.13, and where it is told not to. */
TEST_P(ipc_processes, put_no_flag_before_the_data)
{
    const std::vector<environment> modes =
        has_old_protocols
            ? std::vector<environment>{{}}
            : std::vector<environment>{{}, {{"UCX_FENCE_MODE", "weak"}}};
    for (const environment &mode : modes) {
        for (const char *routes : {"host", "ports"}) {
            SCOPED_TRACE(routes);
            environment all             = variables("gaudi_copy,gaudi_ipc,sm");
            all["UCX_GAUDI_IPC_ROUTES"] = routes;
            all["HLTHUNK_EMU_PORTS"]    = "y";
            all["HLTHUNK_EMU_TIMING"] =
                "to_card=0.05,from_card=0.05,pdma_engine=0.05,port=0.01";
            all.insert(mode.begin(), mode.end());
            const std::string rounds = "20";
            expect_well(
                run_peers({"order", {rounds, "262144", "4"}, all}), "all put",
                "the flag came before the data in 0 of " + rounds + " rounds");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(with, ipc_processes, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

TEST_P(ipc_pods, reach_each_other_by_a_folder)
{
    peers_case whole{traffic(true), {"info"}, over(ipc, GetParam(), sharing())};
    whole.server_prefix = words(in_a_pod);
    whole.client_prefix = words(in_a_pod);
    expect_ipc(run_peers(whole));
    EXPECT_TRUE(std::filesystem::is_empty(
        folder.path("ucx-gaudi-" + std::to_string(geteuid()))));
}

INSTANTIATE_TEST_SUITE_P(with, ipc_pods, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

TEST_P(ipc_nodes, talk_over_tcp)
{
    /* Software cards belong to their network namespace. */
    for (const environment &of_server : {box("node1"), environment{}}) {
        expect_tcp("network namespace", of_server, nodes[1].prefix(),
                   nodes[0].prefix());
    }
}

/* As containers are by default. */
TEST_P(ipc_nodes, of_other_processes_are_told_both)
{
    GAUDI_SKIP_IF(why_no_namespaces(CLONE_NEWPID | CLONE_NEWNS, "proc"));
    const scratch_directory folder;
    for (const environment &of_server : std::vector<environment>{
             {}, {{"UCX_GAUDI_IPC_DIR", folder.path("")}}}) {
        expect_tcp("network namespace", of_server,
                   joined(nodes[1].prefix(), no_processes), nodes[0].prefix());
    }
}

TEST_P(ipc_nodes, run_the_manifests_of_the_page)
{
    GAUDI_SKIP_IF(why_no_namespaces(
        CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS, "proc"));
    const auto pairs = manifests(read_file(GAUDI_PODS_PAGE));
    ASSERT_EQ(1u, pairs.size());
    run_pods(pairs[0], nodes[0], nodes[1], "10.77.7.0");
}

INSTANTIATE_TEST_SUITE_P(with, ipc_nodes, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

} // namespace gaudi::test
