/* What cards move for a transfer over gaudi_ipc: its bytes, once, and nothing
 * when both sides are host memory. A staging buffer would be a second time. */
#include "gtest/tools/two_peers.h"

#include <cstdint>
#include <sstream>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/* A line of ucp_peer with the option "count". */
struct moved_bytes {
    std::string name;
    uint64_t size             = 0;
    uint64_t host_to_device   = 0;
    uint64_t device_to_host   = 0;
    uint64_t device_to_device = 0;
    uint64_t host_to_host     = 0;

    [[nodiscard]] uint64_t sum() const
    {
        return host_to_device + device_to_host + device_to_device +
               host_to_host;
    }
};

std::vector<moved_bytes> parse(const std::string &output)
{
    std::vector<moved_bytes> result;
    for (const std::string &line : lines_with(output, "dma\t")) {
        std::istringstream fields(line);
        moved_bytes one;
        std::string ignored;
        std::getline(fields, ignored, '\t');
        std::getline(fields, one.name, '\t');
        fields >> one.size >> one.host_to_device >> one.device_to_host >>
            one.device_to_device >> one.host_to_host;
        EXPECT_FALSE(fields.fail()) << line;
        result.push_back(one);
    }
    return result;
}

bool contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

/* From and to: of the client and of the server, as ucp_peer names transfers. */
struct memories {
    bool client_gaudi;
    bool server_gaudi;
    bool is_get; /* bytes go to the client */

    explicit memories(const std::string &name)
        : client_gaudi(contains(name, "from gaudi")),
          server_gaudi(contains(name, "to gaudi")),
          is_get(name.starts_with("get"))
    {}

    [[nodiscard]] bool source() const
    {
        return is_get ? server_gaudi : client_gaudi;
    }
    [[nodiscard]] bool target() const
    {
        return is_get ? client_gaudi : server_gaudi;
    }
};

/* Protocol generation, traffic. */
using bytes_case = std::tuple<const char *, const char *>;

class ipc_bytes : public two_peers,
                  public ::testing::WithParamInterface<bytes_case> {
protected:
    /* Both sides together, by transfer. */
    [[nodiscard]] std::vector<moved_bytes> count(const std::string &sizes) const
    {
        const auto &[proto, traffic] = GetParam();
        const peers_result result =
            run_peers({traffic,
                       {"count", "sizes=" + sizes},
                       {{"UCX_TLS", "gaudi_copy,gaudi_ipc"},
                        {"UCX_PROTO_ENABLE", proto}}});
        expect_all_sent(result);
        std::vector<moved_bytes> sum          = parse(result.client.output);
        const std::vector<moved_bytes> server = parse(result.server.output);
        EXPECT_FALSE(sum.empty());
        EXPECT_EQ(sum.size(), server.size());
        for (size_t i = 0; i < std::min(sum.size(), server.size()); ++i) {
            EXPECT_EQ(sum[i].name, server[i].name);
            sum[i].host_to_device += server[i].host_to_device;
            sum[i].device_to_host += server[i].device_to_host;
            sum[i].device_to_device += server[i].device_to_device;
            sum[i].host_to_host += server[i].host_to_host;
        }
        return sum;
    }

    /* Directly from where the bytes are to where they belong. */
    static void expect_once(const moved_bytes &moved)
    {
        SCOPED_TRACE(moved.name);
        const memories where(moved.name);
        const bool is_host = !where.source() && !where.target();
        EXPECT_EQ(is_host ? 0 : moved.size, moved.sum());
        EXPECT_EQ(is_host                            ? 0
                  : where.source() && where.target() ? moved.device_to_device
                  : where.source()                   ? moved.device_to_host
                                                     : moved.host_to_device,
                  moved.sum());
    }

    /* Out of the source and into the target. */
    static void expect_through_the_queue(const moved_bytes &moved)
    {
        SCOPED_TRACE(moved.name);
        const memories where(moved.name);
        EXPECT_EQ(where.source() ? moved.size : 0, moved.device_to_host);
        EXPECT_EQ(where.target() ? moved.size : 0, moved.host_to_device);
        EXPECT_EQ(0u, moved.device_to_device);
        EXPECT_EQ(0u, moved.host_to_host);
    }
};

using ipc_message_bytes = ipc_bytes;
using ipc_rma_bytes     = ipc_bytes;

std::string name_of(const ::testing::TestParamInfo<bytes_case> &info)
{
    const auto &[proto, traffic] = info.param;
    return std::string(traffic) + "_proto_" + proto;
}

} // namespace

TEST_P(ipc_message_bytes, of_large_messages_move_once)
{
    for (const moved_bytes &moved : count("300001,1048576,5000000")) {
        /* The first are never more than copies through the queue, and the new
         * protocols of UCP 1.13 send the second no other way. */
        if (contains(moved.name, "eager") ||
            (contains(moved.name, "sync") &&
             (std::get<0>(GetParam()) == std::string("y")))) {
            expect_through_the_queue(moved);
        } else {
            expect_once(moved);
        }
    }
}

TEST_P(ipc_message_bytes, of_small_messages_move_once_or_through_the_queue)
{
    for (const moved_bytes &moved : count("8,1000")) {
        if ((moved.device_to_device != 0) ||
            contains(moved.name, "rendezvous")) {
            expect_once(moved);
        } else {
            expect_through_the_queue(moved);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(of, ipc_message_bytes,
                         ::testing::Combine(::testing::Values("n", "y"),
                                            ::testing::Values("tag", "am")),
                         name_of);

TEST_P(ipc_rma_bytes, move_once)
{
    for (const moved_bytes &moved : count("8,5000,300001,1048576")) {
        expect_once(moved);
    }
}

INSTANTIATE_TEST_SUITE_P(of, ipc_rma_bytes,
                         ::testing::Combine(::testing::Values("n", "y"),
                                            ::testing::Values("rma")),
                         name_of);

} // namespace gaudi::test
