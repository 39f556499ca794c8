/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between two processes arrive as they were sent, over stock UCP. */
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

namespace gaudi::test {

namespace {

/* A run of ucp_peer: see peer/ucp_peer.cc for traffic and options. */
struct contents_case {
    std::string name;
    std::string tls; /* beside gaudi_copy; empty: whatever UCX finds */
    std::string proto;
    std::string traffic;
    arguments options;
    environment more = {};
};

void PrintTo(const contents_case &what, std::ostream *out)
{
    *out << what.name;
}

std::string name_of(const ::testing::TestParamInfo<contents_case> &info)
{
    return as_name((info.param.tls.empty() ? "any" : info.param.tls) +
                   "_proto_" + info.param.proto + "_" + info.param.traffic +
                   "_" + info.param.name);
}

/* UCP 1.13's default protocols do RMA to another process with the CPU: host
 * memory only, where gaudi_ipc does not serve it. See crashes_of_old_releases
 * in test_perftest.cc. */
std::string rma(const std::string &tls, const std::string &proto)
{
    return ((proto == "y") || (tls == "gaudi_ipc")) ? "rma" : "rma-host";
}

/* ... and overwrite the memory handle of some receives into device memory. */
arguments with_handles(const std::string &proto, arguments options)
{
    if (proto == "y") {
        options.emplace_back("handles");
    }
    return options;
}

template <typename Callable>
void for_each_generation(const Callable &call)
{
    for (const char *tls : {"sm", "tcp", "gaudi_ipc"}) {
        for (const char *proto : protocols()) {
            call(std::string(tls), std::string(proto));
        }
    }
}

std::vector<contents_case> every_size()
{
    std::vector<contents_case> result;
    for_each_generation([&](const std::string &tls, const std::string &proto) {
        for (const std::string &traffic :
             {std::string("tag"), std::string("pieces"), std::string("am"),
              std::string("stream"), rma(tls, proto)}) {
            /* The default protocols give tcp device addresses of lists. */
            if ((traffic != "pieces") || (proto == "y") || (tls != "tcp")) {
                result.push_back({"every_size", tls, proto, traffic,
                                  with_handles(proto, {})});
            }
        }
    });
    return result;
}

/* What is said to ucp_peer, beside the traffic. */
struct variant {
    std::string name;
    arguments options;
    environment more = {};
};

/* Messages of these kinds and RMA, in few sizes. */
std::vector<contents_case> vary(const std::string &messages,
                                const std::vector<variant> &variants)
{
    std::vector<contents_case> result;
    for_each_generation([&](const std::string &tls, const std::string &proto) {
        for (const auto &[name, options, more] : variants) {
            result.push_back(
                {name, tls, proto, messages + "," + rma(tls, proto),
                 with_handles(proto, joined({"few"}, options)), more});
        }
    });
    return result;
}

std::vector<contents_case> every_way()
{
    auto result = vary("tag,am,stream", {{"worker_wait", {"worker-wait"}},
                                         {"event_fd", {"event-fd"}},
                                         {"shared_worker", {"shared=3"}},
                                         {"worker_per_thread", {"own=3"}},
                                         {"peer_errors", {"peer-errors"}}});
    std::erase_if(result, [](const contents_case &one) {
        /* Stock sm has no error handling. */
        return (one.name == "peer_errors") && (one.tls == "sm");
    });
    return result;
}

std::vector<contents_case> every_setting()
{
    auto result = vary("tag,am,stream",
                       {{"without_cache", {}, {{"UCX_MEMTYPE_CACHE", "n"}}},
                        {"all_rendezvous", {}, {{"UCX_RNDV_THRESH", "0"}}},
                        {"all_eager", {}, {{"UCX_RNDV_THRESH", "inf"}}}});
    for (const char *proto : protocols()) {
        result.push_back({"defaults", "", proto,
                          "tag,am,stream," + rma("", proto),
                          with_handles(proto, {"few"})});
    }
    return result;
}

/* Device memory that the program got from libhl-thunk.so by itself. */
std::vector<contents_case> every_own_card()
{
    std::vector<variant> variants;
    for (const char *cache : {"y", "n", "try"}) {
        for (const char *when : {"card-before", "card-after"}) {
            variants.push_back({std::string(when) + "_cache_" + cache,
                                {when},
                                {{"UCX_MEMTYPE_CACHE", cache}}});
        }
    }
    return vary("tag,am", variants);
}

class contents : public two_peers,
                 public ::testing::WithParamInterface<contents_case> {};

} // namespace

TEST_P(contents, arrive_unchanged_and_touch_nothing_else)
{
    const contents_case &what = GetParam();
    const std::string tls = what.tls.empty() ? "" : "gaudi_copy," + what.tls;
    expect_all_sent(run_peers(
        {what.traffic, what.options, over(tls, what.proto, what.more)}));
}

INSTANTIATE_TEST_SUITE_P(of_sizes, contents, ::testing::ValuesIn(every_size()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(of_ways, contents, ::testing::ValuesIn(every_way()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(of_own_cards, contents,
                         ::testing::ValuesIn(every_own_card()), name_of);
INSTANTIATE_TEST_SUITE_P(of_settings, contents,
                         ::testing::ValuesIn(every_setting()), name_of);

} // namespace gaudi::test
