/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents of a serving system: lists of blocks by put and get, as NIXL moves
 * them. */
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

namespace gaudi::test {

namespace {

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

/* With an endpoint that notices dead peers: stock sm has none, and where it
 * has, UCX's default takes it. */
std::vector<way_to_peer> ways(const arguments &choices)
{
    std::vector<way_to_peer> result;
    for (const std::string &tls : choices) {
        for (const char *proto : protocols()) {
            result.push_back({tls, proto});
        }
    }
    return result;
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

    void expect_moved(arguments what) const
    {
        if (!moves_device_memory(GetParam())) {
            what.emplace_back("host");
        }
        what.insert(what.begin(), "agents");
        expect_well(run_pair("ucp_peer", what, settings()), "all moved",
                    "all moved");
    }
};

using serving_by_ipc = serving;

} // namespace

TEST_P(serving, moves_lists_by_workers_and_a_progress_thread)
{
    expect_moved({"blocks", "64"});
    expect_moved({"blocks", "4096", "workers=2", "thread"});
}

TEST_P(serving, bears_memory_that_comes_and_goes_under_lists)
{
    expect_moved({"churn", "5", "thread"});
    arguments withdraw{"withdraw", "3"};
    if (has_direct_transfers(GetParam().tls)) {
        withdraw.emplace_back("refuses");
    }
    expect_moved(withdraw);
}

INSTANTIATE_TEST_SUITE_P(over, serving,
                         ::testing::ValuesIn(ways({"", "gaudi_copy,gaudi_ipc",
                                                   "gaudi_copy,tcp"})),
                         name_of);

TEST_P(serving_by_ipc, drops_lists_on_their_way)
{
    expect_moved({"abandon", "6"});
}

/* NIXL was seen to have 112,000 in one request, of 64 bytes each. */
TEST_P(serving_by_ipc, moves_lists_of_many_blocks)
{
    expect_moved({"blocks", "30000"});
}

TEST_P(serving_by_ipc, moves_memory_of_a_card_that_the_program_opened)
{
    expect_moved({"blocks", "512", "card"});
}

INSTANTIATE_TEST_SUITE_P(over, serving_by_ipc,
                         ::testing::ValuesIn(ways({"gaudi_copy,gaudi_ipc"})),
                         name_of);

} // namespace gaudi::test
