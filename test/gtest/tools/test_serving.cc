/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents of a serving system: lists of blocks by put and get, as NIXL moves
 * them, over every choice of transports. */
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/* A choice of UCX_TLS (empty: UCX's default) and a protocol generation. */
struct way_to_peer {
    std::string tls;
    std::string proto;
};

void PrintTo(const way_to_peer &what, std::ostream *out)
{
    *out << what.tls << " " << what.proto;
}

bool has_direct_transfers(const std::string &tls)
{
    return tls.empty() || (tls == "gaudi") ||
           (tls.find("gaudi_ipc") != std::string::npos);
}

/* Without gaudi_ipc the old protocols put and get with the CPU: the agents
 * leave out device memory, as the name of the test says. */
bool moves_device_memory(const way_to_peer &way)
{
    return (way.proto == "y") || has_direct_transfers(way.tls);
}

std::string name_of(const ::testing::TestParamInfo<way_to_peer> &info)
{
    return as_name((info.param.tls.empty() ? "any" : info.param.tls) +
                   "_proto_" + info.param.proto +
                   (moves_device_memory(info.param) ? "" : "_host_memory"));
}

std::vector<way_to_peer> with_each_generation(const arguments &choices)
{
    std::vector<way_to_peer> result;
    for (const std::string &tls : choices) {
        for (const char *proto : protocols()) {
            result.push_back({tls, proto});
        }
    }
    return result;
}

/* Those with an endpoint that notices dead peers: stock sm has none. */
std::vector<way_to_peer> every_way()
{
    return with_each_generation(
        {"", "gaudi", "gaudi_copy,gaudi_ipc", "gaudi_copy,gaudi_ipc,sm",
         "gaudi_copy,gaudi_ipc,tcp", "gaudi_copy,tcp", "gaudi_copy,sm,tcp"});
}

std::vector<way_to_peer> main_ways()
{
    return with_each_generation({"", "gaudi_copy,gaudi_ipc", "gaudi_copy,tcp"});
}

class serving : public two_peers,
                public no_shared_memory_left,
                public ::testing::WithParamInterface<way_to_peer> {
protected:
    [[nodiscard]] process_options settings(environment variables = {}) const
    {
        /* Its timer would end a sleep that nobody else ends. */
        variables.try_emplace("UCX_KEEPALIVE_INTERVAL", "inf");
        return with(over(GetParam().tls, GetParam().proto, variables),
                    std::chrono::seconds(110));
    }

    /* Every message of UCX is about the lost one. */
    void expect_end_is_noticed() const
    {
        const peers_result result =
            run_pair("ucp_agents", {"end", "20"},
                     settings({{"UCX_KEEPALIVE_INTERVAL", "500ms"},
                               {"UCX_LOG_LEVEL", "fatal"}}));
        EXPECT_TRUE(exited_with(0, result.client));
        EXPECT_THAT(result.client.output, HasSubstr("all moved"));
        /* It went when it was asked to, and lost nothing before. */
        EXPECT_TRUE(exited_with(0, result.server));
        EXPECT_THAT(result.server.output, IsEmpty());
    }

    [[nodiscard]] peers_result run_agents(arguments what) const
    {
        if (!moves_device_memory(GetParam())) {
            what.emplace_back("host");
        }
        return run_pair("ucp_agents", what, settings());
    }

    void expect_moved(const arguments &what) const
    {
        expect_well(run_agents(what), "all moved", "all moved");
    }
};

using serving_in_other_ways     = serving;
using serving_by_lists          = serving;
using serving_lanes             = serving;
using serving_of_lost_agents    = serving;
using serving_of_bad_keys       = serving;
using serving_with_errors_of_sm = serving;
using serving_without_errors    = serving;

} // namespace

TEST_P(serving, moves_lists_of_64_blocks)
{
    expect_moved({"blocks", "64"});
}

TEST_P(serving, moves_lists_of_4096_blocks_by_workers_and_a_progress_thread)
{
    expect_moved({"blocks", "4096", "workers=2", "thread"});
}

TEST_P(serving, wakes_an_agent_that_sleeps)
{
    expect_moved({"wake", "500", "thread"});
}

TEST_P(serving, registers_and_deregisters_while_lists_are_on_their_way)
{
    expect_moved({"churn", "10", "thread"});
}

TEST_P(serving, drops_lists_on_their_way)
{
    expect_moved({"abandon", "6"});
}

TEST_P(serving, bears_that_memory_is_taken_back_under_lists)
{
    expect_moved({"withdraw", "5"});
}

INSTANTIATE_TEST_SUITE_P(over, serving, ::testing::ValuesIn(every_way()),
                         name_of);

TEST_P(serving_in_other_ways, moves_lists_of_4096_blocks)
{
    expect_moved({"blocks", "4096"});
}

/* As many as NIXL was seen to have in one request, of 64 bytes each. */
TEST_P(serving_in_other_ways, moves_lists_of_112000_blocks)
{
    expect_moved({"blocks", "112000"});
}

TEST_P(serving_in_other_ways, moves_memory_of_a_card_that_the_program_opened)
{
    expect_moved({"blocks", "512", "card"});
}

TEST_P(serving_in_other_ways, moves_lists_of_threads_that_share_a_worker)
{
    expect_moved({"blocks", "512", "thread"});
}

TEST_P(serving_in_other_ways, moves_lists_by_several_workers)
{
    expect_moved({"blocks", "512", "workers=3"});
}

INSTANTIATE_TEST_SUITE_P(over, serving_in_other_ways,
                         ::testing::ValuesIn(main_ways()), name_of);

/* Newer releases have lanes of shared memory beside, for host memory. */
TEST_P(serving_lanes, are_of_gaudi_ipc_though_there_is_tcp)
{
    const peers_result result =
        run_pair("ucp_agents", {"lanes", "8"}, settings());
    EXPECT_TRUE(exited_with(0, result.client));
    const auto lanes = lines_with(result.client.output, " lane[");
    EXPECT_THAT(lanes, ::testing::Contains(HasSubstr("gaudi_ipc/")));
    EXPECT_THAT(lines_with(result.client.output, "tcp/"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(over, serving_lanes,
                         ::testing::ValuesIn(with_each_generation(
                             {"", "gaudi", "gaudi_copy,gaudi_ipc,tcp",
                              "gaudi_copy,gaudi_ipc,sm,tcp"})),
                         name_of);

/* From UCX 1.22 on, get from 1.23. */
TEST_P(serving_by_lists, moves_each_by_one_call)
{
    expect_moved({"blocks", "4096", "lists"});
}

TEST_P(serving_by_lists, moves_each_of_112000_blocks_by_one_call)
{
    expect_moved({"blocks", "112000", "lists"});
}

/* UCX 1.22 cancels lists where a lane of its own cannot put them. */
INSTANTIATE_TEST_SUITE_P(
    over, serving_by_lists,
    ::testing::ValuesIn(ucx_is_before(1, 22) ? std::vector<way_to_peer>()
                        : ucx_is_before(1, 23)
                            ? with_each_generation({"gaudi_copy,gaudi_ipc"})
                            : main_ways()),
    name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(serving_by_lists);

/* Not with the new protocols of UCP 1.13, which end the process then. */
TEST_P(serving_of_lost_agents, ends_their_lists)
{
    expect_end_is_noticed();
}

INSTANTIATE_TEST_SUITE_P(over, serving_of_lost_agents,
                         ::testing::Values(way_to_peer{"gaudi_copy,gaudi_ipc",
                                                       default_protocols},
                                           way_to_peer{"", default_protocols}),
                         name_of);

TEST_P(serving_of_bad_keys, goes_on)
{
    const peers_result result = run_pair(
        "ucp_agents", {"unknown", "96"},
        settings({{"UCX_LOG_LEVEL", "fatal"}, {"UCX_RCACHE_ENABLE", "n"}}));
    for (const process_result *side : {&result.client, &result.server}) {
        EXPECT_TRUE(exited_with(0, *side));
        EXPECT_EQ(side->output, "all moved\n");
    }
}

/* Only gaudi_ipc has something of ours in a key. */
INSTANTIATE_TEST_SUITE_P(
    over, serving_of_bad_keys,
    ::testing::ValuesIn(with_each_generation({"", "gaudi_copy,gaudi_ipc",
                                              "gaudi_copy,gaudi_ipc,sm",
                                              "gaudi_copy,gaudi_ipc,tcp"})),
    name_of);

TEST_P(serving_without_errors, moves_lists)
{
    expect_moved({"blocks", "512", "thread", "no-errors"});
}

/* What a system that wants to hear of dead peers is told. */
TEST_P(serving_without_errors, are_the_only_ones)
{
    const peers_result result = run_agents({"blocks", "64"});
    for (const process_result *side : {&result.client, &result.server}) {
        EXPECT_TRUE(exited_with(1, *side));
        EXPECT_THAT(side->output, HasSubstr("no peer failure handler"));
        EXPECT_THAT(side->output,
                    HasSubstr("ucp_ep_create: Destination is unreachable"));
    }
}

INSTANTIATE_TEST_SUITE_P(
    over, serving_without_errors,
    ::testing::ValuesIn(with_each_generation({"gaudi_copy,sm"})), name_of);

} // namespace gaudi::test
