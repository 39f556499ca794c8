/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes arrive as they were sent, over stock UCP: between two processes, or
 * within one. */
#include "common/needs.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include <sstream>

namespace gaudi::test {

namespace {

/* A run of ucp_peer: see peer/ucp_peer.cc for the words. */
struct contents_case {
    std::string name;
    std::string tls; /* beside gaudi_copy; empty: whatever UCX finds */
    std::string proto;
    std::string words; /* traffic, and options */
    environment more = {};
};

void PrintTo(const contents_case &what, std::ostream *out)
{
    *out << what.name;
}

std::string name_of(const ::testing::TestParamInfo<contents_case> &info)
{
    const contents_case &what = info.param;
    return as_name(what.name + "_" + (what.tls.empty() ? "any" : what.tls) +
                   "_proto_" + what.proto);
}

bool is_new(const std::string &proto)
{
    return proto == "y";
}

/* UCP 1.13's default protocols do RMA to another process with the CPU: host
 * memory only, where gaudi_ipc does not serve it. See crashes_of_old_releases
 * in test_perftest.cc. */
std::string rma(const std::string &tls, const std::string &proto)
{
    return (is_new(proto) || (tls == "gaudi_ipc")) ? "rma" : "rma-host";
}

/* ... and overwrite the memory handle of some receives into device memory. */
std::string handles(const std::string &proto)
{
    return is_new(proto) ? " handles" : "";
}

std::vector<contents_case> every_way()
{
    std::vector<contents_case> result;
    for (const std::string proto : protocols()) {
        for (const std::string tls : {"sm", "tcp", "gaudi_ipc"}) {
            result.push_back({"every_size", tls, proto,
                              "tag,am,stream," + rma(tls, proto) + " many" +
                                  handles(proto)});
            /* The default protocols give tcp device addresses of lists. */
            if (is_new(proto) || (tls != "tcp")) {
                result.push_back(
                    {"lists", tls, proto, "pieces many" + handles(proto)});
            }
        }
        result.push_back({"defaults", "", proto,
                          "tag,am,stream," + rma("", proto) + handles(proto)});
    }
    return result;
}

/* Each alone, over a transport of ours and one of UCX. */
std::vector<contents_case> every_setting()
{
    const std::string proto    = default_protocols;
    const std::string all      = "tag,am,stream,rma ";
    const std::string of_cards = "tag,am ";
    const environment no_cache = {{"UCX_MEMTYPE_CACHE", "n"}};
    std::vector<contents_case> result{
        {"worker_wait", "gaudi_ipc", proto, all + "worker-wait"},
        {"event_fd", "gaudi_ipc", proto, all + "event-fd"},
        {"event_fd", "tcp", proto, "tag,am,stream event-fd"},
        {"shared_worker", "gaudi_ipc", proto, all + "shared=3"},
        {"worker_per_thread", "gaudi_ipc", proto, all + "own=3"},
        {"worker_per_thread", "sm", proto, "tag,am,stream own=3"},
        {"peer_errors", "gaudi_ipc", proto, all + "peer-errors"},
        {"card_before", "gaudi_ipc", proto, of_cards + "card-before"},
        {"card_after", "sm", proto, of_cards + "card-after"},
        {"card_before_no_cache", "sm", proto, of_cards + "card-before",
         no_cache},
        {"card_after_try_cache",
         "gaudi_ipc",
         proto,
         of_cards + "card-after",
         {{"UCX_MEMTYPE_CACHE", "try"}}},
        {"no_cache", "gaudi_ipc", proto, all, no_cache}};
    for (const char *threshold : {"0", "inf"}) {
        for (const char *tls : {"tcp", "gaudi_ipc"}) {
            result.push_back({std::string("rendezvous_from_") + threshold,
                              tls,
                              proto,
                              "tag,am,stream",
                              {{"UCX_RNDV_THRESH", threshold}}});
        }
    }
    return result;
}

/* Within one process, where UCX's own tests are, too (test/ucx_gtest). */
std::vector<contents_case> what_is_particular_within()
{
    std::vector<contents_case> result;
    for (const char *proto : protocols()) {
        /* An assertion of UCP 1.13 fails at lists behind other messages. */
        result.push_back({"lists", "sm", proto, "pieces"});
        result.push_back({"late", "", proto, "tag,rma late"});
        result.push_back(
            {"late_own_card", "", proto, "tag,rma late card-after"});
        result.push_back({"second_card",
                          "sm",
                          proto,
                          "tag,rma second-card",
                          {{"UCX_GAUDI_DEVICES", "all"}}});
    }
    return result;
}

bool opens_a_card(const contents_case &what)
{
    return what.words.find(" card-") != std::string::npos;
}

class contents : public two_peers,
                 public ::testing::WithParamInterface<contents_case> {
protected:
    static environment variables()
    {
        const contents_case &what = GetParam();
        return over(what.tls.empty() ? "" : "gaudi_copy," + what.tls,
                    what.proto, what.more);
    }
};

using contents_within = contents;

/* --- which cards move them ------------------------------------------------ */

/* A line of ucp_peer with the option "count". */
struct moved_bytes {
    std::string name;
    uint64_t size           = 0;
    uint64_t host_to_device = 0;
    uint64_t device_to_host = 0;
    uint64_t others         = 0;
};

std::vector<moved_bytes> parse(const std::string &output)
{
    std::vector<moved_bytes> result;
    for (const std::string &line : lines_with(output, "dma\t")) {
        std::istringstream fields(line);
        moved_bytes one;
        uint64_t between_hosts = 0;
        std::getline(fields, one.name, '\t');
        std::getline(fields, one.name, '\t');
        fields >> one.size >> one.host_to_device >> one.device_to_host >>
            one.others >> between_hosts;
        one.others += between_hosts;
        EXPECT_FALSE(fields.fail()) << line;
        result.push_back(one);
    }
    return result;
}

/* That of device memory moves them once, at each side: the source's to host
 * memory, the target's from there. Names tell the client's memory first. */
void expect_once(const moved_bytes &client, const moved_bytes &server)
{
    SCOPED_TRACE(client.name);
    const auto has = [&](const char *part) {
        return client.name.find(part) != std::string::npos;
    };
    const bool is_get         = client.name.starts_with("get");
    const moved_bytes &source = is_get ? server : client;
    const moved_bytes &target = is_get ? client : server;
    const bool of_client      = has("from gaudi");
    const bool of_server      = has("to gaudi");
    const uint64_t from_card  = (is_get ? of_server : of_client) ? 1 : 0;
    const uint64_t to_card    = (is_get ? of_client : of_server) ? 1 : 0;
    EXPECT_EQ(client.name, server.name);
    EXPECT_EQ(from_card * client.size, source.device_to_host);
    EXPECT_EQ(to_card * client.size, target.host_to_device);
    EXPECT_EQ(0u, source.host_to_device + source.others);
    EXPECT_EQ(0u, target.device_to_host + target.others);
}

/* Protocol generation. */
class ipc_bytes : public two_peers,
                  public ::testing::WithParamInterface<const char *> {
protected:
    /* UCP knows nothing of host memory here but what it is told with each
     * transfer. */
    void expect_all_once(const std::string &traffic, const std::string &scheme,
                         const std::string &tls = "gaudi_copy,gaudi_ipc") const
    {
        SCOPED_TRACE(traffic + " " + scheme + " " + tls);
        const peers_result result = run_peers(
            {traffic, words("count plain sizes=8,5000,300001,1048576"),
             over(tls, GetParam(), {{"UCX_RNDV_SCHEME", scheme}})});
        expect_all_sent(result);
        const std::vector<moved_bytes> client = parse(result.client.output);
        const std::vector<moved_bytes> server = parse(result.server.output);
        EXPECT_FALSE(client.empty());
        ASSERT_EQ(client.size(), server.size());
        for (size_t i = 0; i < client.size(); ++i) {
            expect_once(client[i], server[i]);
        }
    }
};

} // namespace

TEST_P(contents, arrive_unchanged_and_touch_nothing_else)
{
    const arguments all = words(GetParam().words);
    if (opens_a_card(GetParam())) {
        GAUDI_NEEDS(own_card);
    }
    expect_all_sent(
        run_peers({all[0], {all.begin() + 1, all.end()}, variables()}));
}

INSTANTIATE_TEST_SUITE_P(of_ways, contents, ::testing::ValuesIn(every_way()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(of_settings, contents,
                         ::testing::ValuesIn(every_setting()), name_of);

TEST_P(contents_within, arrive_unchanged_and_touch_nothing_else)
{
    if (opens_a_card(GetParam())) {
        GAUDI_NEEDS(own_card);
    }
    if (GetParam().words.ends_with("second-card")) {
        GAUDI_NEEDS(second_card);
    }
    EXPECT_TRUE(
        is_quiet_success(emulated(joined({GAUDI_TOOLS_DIR "/ucp_peer", "alone"},
                                         words(GetParam().words)),
                                  variables(), std::chrono::seconds(90)),
                         {"all there"}));
}

INSTANTIATE_TEST_SUITE_P(a_process, contents_within,
                         ::testing::ValuesIn(what_is_particular_within()),
                         name_of);

TEST_P(ipc_bytes, of_messages_move_once)
{
    expect_all_once("tag,am", "auto");
    expect_all_once("tag", "get_zcopy");
    expect_all_once("tag", "put_zcopy");
    expect_all_once("tag", "auto", "gaudi_copy,gaudi_ipc,sm");
}

TEST_P(ipc_bytes, of_puts_and_gets_move_once)
{
    expect_all_once("rma", "auto");
}

INSTANTIATE_TEST_SUITE_P(with, ipc_bytes, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

} // namespace gaudi::test
