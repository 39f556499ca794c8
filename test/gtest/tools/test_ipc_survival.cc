/* SPDX-License-Identifier: BSD-3-Clause */
/* gaudi_ipc outlives its peers and their memory, and keeps nothing of them. */
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include "common/ability.h"
#include "common/scratch.h"

#include <random>
#include <tuple>

#include <sys/stat.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* Protocol generation. */
class ipc_survival : public two_peers,
                     public no_shared_memory_left,
                     public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] process_options settings(environment variables = {}) const
    {
        return with(over("gaudi_copy,gaudi_ipc", GetParam(), variables),
                    std::chrono::seconds(580));
    }

    /* A card for the survivor, one for a peer, and some that processes which
     * are just dead may still hold. */
    void survive(unsigned kills, const arguments &around = {},
                 const environment &more = {})
    {
        /* What UCX says of a dead peer is no complaint. */
        environment all = {{"UCX_KEEPALIVE_INTERVAL", "500ms"},
                           {"UCX_LOG_LEVEL", "fatal"}};
        all.insert(more.begin(), more.end());
        const auto seed = std::random_device()();
        SCOPED_TRACE("seed " + std::to_string(seed));
        const process_result result =
            run(joined(around, under_launcher({GAUDI_TOOLS_DIR "/ucp_survivor",
                                               std::to_string(kills),
                                               std::to_string(seed)},
                                              {"--emulate=4"})),
                settings(all));
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_THAT(result.output,
                    HasSubstr("survived " + std::to_string(kills) + " kills"));
    }

    void export_and_use(unsigned buffers)
    {
        expect_well(
            run_pair("ucp_exports", {std::to_string(buffers)}, settings()),
            "all used", "all exported");
    }

    /* What goes wrong is said in many ways. */
    void bear(const std::string &what)
    {
        const peers_result result = run_pair(
            "ucp_hardships", {what}, settings({{"UCX_LOG_LEVEL", "fatal"}}));
        EXPECT_TRUE(exited_with(0, result.client)) << "client";
        EXPECT_TRUE(exited_with(0, result.server)) << "server";
        EXPECT_THAT(result.client.output, HasSubstr("all borne"));
        EXPECT_THAT(result.server.output, HasSubstr("all given"));
    }
};

using ipc_survival_of_kills          = ipc_survival;
using ipc_survival_of_buffers        = ipc_survival;
using ipc_survival_of_hardships      = ipc_survival;
using ipc_stress_survival_of_kills   = ipc_survival;
using ipc_stress_survival_of_buffers = ipc_survival;

/* Way between cards, generation of protocols, error handling, and how messages
 * go: see peer/ucp_interruptions.cc. */
using interruption =
    std::tuple<const char *, const char *, const char *, const char *>;
class ipc_interruptions : public two_peers,
                          public no_shared_memory_left,
                          public ::testing::WithParamInterface<interruption> {
protected:
    /* @param loser  Whose card is reset. */
    void interrupt(const std::string &events, const std::string &loser = {})
    {
        const auto [way, protocols, errors, messages] = GetParam();
        SCOPED_TRACE(events);
        environment variables{{"UCX_GAUDI_IPC_ROUTES", way},
                              {"HLTHUNK_EMU_PORTS", "y"},
                              {"HLTHUNK_EMU_PORT_RETRIES", "10"},
                              {"UCX_KEEPALIVE_INTERVAL", "500ms"},
                              {"UCX_HANDLE_ERRORS", "none"},
                              {"UCX_LOG_LEVEL", "error"}};
        if (std::string(messages) != "eager") {
            variables["UCX_RNDV_SCHEME"] = messages;
        }
        const auto command = [&](const char *role) {
            return peer_command{
                under_launcher(
                    joined({GAUDI_TOOLS_DIR "/ucp_interruptions", role,
                            (std::string(messages) == "eager") ? "1000"
                                                               : "1048576",
                            errors},
                           words(events)),
                    {"--emulate=2"}),
                with(over("gaudi_copy,gaudi_ipc", protocols, variables),
                     std::chrono::seconds(90))};
        };
        const peers_result result =
            run_both(command("server"), command("client"), false);
        expect_end(result.server, (loser == "server") ? faulty : well);
        expect_end(result.client, (loser == "client") ? faulty : well);
    }

    /* Those of UCP 1.13, experimental there, end the process when an endpoint
     * with messages under way is closed by its receiver or by force, and tell
     * of all gets as if they had gone well. */
    [[nodiscard]] static bool are_experimental()
    {
        return has_old_protocols && (std::get<1>(GetParam())[0] == 'y');
    }
};

std::vector<interruption> all_interruptions()
{
    std::vector<interruption> all;
    for (const char *way : {"ports", "host"}) {
        for (const char *generation : protocols()) {
            for (const char *errors : {"peer", "none"}) {
                for (const char *messages :
                     {"eager", "get_zcopy", "put_zcopy"}) {
                    all.emplace_back(way, generation, errors, messages);
                }
            }
        }
    }
    return all;
}

std::string
name_of_interruption(const ::testing::TestParamInfo<interruption> &info)
{
    const auto [way, protocols, errors, messages] = info.param;
    return std::string(way) + "_proto_" + protocols + "_errors_" + errors +
           "_" + messages;
}

} // namespace

/* Not with the new protocols: those of UCP 1.13 abort the process when a peer
 * dies with requests under way (ucp_ep_reqs_purge). */
TEST_P(ipc_survival_of_kills, goes_on_and_keeps_nothing)
{
    survive(12);
}

TEST_P(ipc_survival_of_kills, goes_on_over_ports)
{
    survive(12, {},
            {{"HLTHUNK_EMU_PORTS", "y"},
             {"HLTHUNK_EMU_PORT_RETRIES", "10"},
             {"UCX_GAUDI_IPC_ROUTES", "ports"}});
}

TEST_P(ipc_survival_of_kills, goes_on_over_host_memory)
{
    survive(12, {}, {{"UCX_GAUDI_IPC_ROUTES", "host"}});
}

TEST_P(ipc_survival_of_kills, goes_on_in_pods)
{
    GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces, "proc"));
    const scratch_directory folder;
    ASSERT_EQ(0, mkdir(folder.path("cards").c_str(), 0700));
    survive(12, words(in_a_pod),
            {{"UCX_GAUDI_IPC_DIR", folder.path("")},
             {"HLTHUNK_EMU_NODE", folder.path("cards")},
             {"GAUDI_TEST_AROUND_PEERS", in_a_pod}});
}

INSTANTIATE_TEST_SUITE_P(with, ipc_survival_of_kills,
                         ::testing::Values(default_protocols),
                         name_of_protocols);

TEST_P(ipc_interruptions, by_a_closed_endpoint_or_a_lost_card_hold_up_nobody)
{
    const auto [way, protocols, errors, messages] = GetParam();
    const bool handles_errors = (std::string(errors) == "peer");
    const bool puts           = (std::string(messages) == "put_zcopy");
    std::string closings      = "flush0@client flush1@client ";
    /* Without error handling UCP knows endpoints by their addresses, and takes
     * what is sent to one that was closed for another one's. */
    if (handles_errors && !are_experimental()) {
        closings += "flush0@server flush1@server force0@client force0@server "
                    "force1@client force1@server flush1@client ";
    }
    if (!are_experimental() || (puts && !handles_errors)) {
        interrupt(closings + "reset1@client", "client");
        interrupt("flush1@client reset0@server", "server");
    } else {
        interrupt(closings);
    }
}

INSTANTIATE_TEST_SUITE_P(over, ipc_interruptions,
                         ::testing::ValuesIn(all_interruptions()),
                         name_of_interruption);

/* UCP 1.13 releases what a key was before that cannot be unpacked. */
TEST_P(ipc_survival_of_hardships, unpacks_damaged_keys)
{
    bear("damage");
}

/* Without a key UCP would have the CPU of its owner touch what was there. */
TEST_P(ipc_survival_of_hardships, fails_operations_on_freed_memory)
{
    bear("stale");
}

/* An unreachable key would have UCP touch device memory with the CPU. */
TEST_P(ipc_survival_of_hardships, fails_operations_when_there_is_no_descriptor)
{
    bear("room");
}

INSTANTIATE_TEST_SUITE_P(with, ipc_survival_of_hardships,
                         ::testing::ValuesIn(protocols()), name_of_protocols);

TEST_P(ipc_survival_of_buffers, keeps_nothing)
{
    export_and_use(2000);
}

/* More than half of a card each: the key of one that is freed does not hold it.
 */
TEST_P(ipc_survival_of_buffers, gives_most_of_a_card_again)
{
    const process_result result =
        run(under_launcher({GAUDI_TOOLS_DIR "/ucp_exports", "alone", "4",
                            std::to_string(288ul << 20)}),
            settings({{"HLTHUNK_EMU_HBM", "480M"},
                      {"HLTHUNK_EMU_DRAM_PAGE", "48M"}}));
    EXPECT_TRUE(is_quiet_success(result, {"all sent"}));
}

INSTANTIATE_TEST_SUITE_P(with, ipc_survival_of_buffers,
                         ::testing::ValuesIn(protocols()), name_of_protocols);

TEST_P(ipc_stress_survival_of_kills, goes_on_a_hundred_times)
{
    survive(100);
}

INSTANTIATE_TEST_SUITE_P(with, ipc_stress_survival_of_kills,
                         ::testing::Values(default_protocols),
                         name_of_protocols);

TEST_P(ipc_stress_survival_of_buffers, keeps_nothing_of_a_hundred_thousand)
{
    export_and_use(100000);
}

INSTANTIATE_TEST_SUITE_P(with, ipc_stress_survival_of_buffers,
                         ::testing::ValuesIn(protocols()), name_of_protocols);

} // namespace gaudi::test
