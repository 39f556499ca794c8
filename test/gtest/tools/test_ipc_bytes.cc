/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cards move the bytes of a transfer over gaudi_ipc: that of device
 * memory moves them once, at each side, and none does between host memory. */
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include <cstdint>
#include <sstream>

namespace gaudi::test {

namespace {

constexpr uint64_t chunk = uint64_t{1} << 16; /* of shared host memory */

/* A line of ucp_peer with the option "count". */
struct moved_bytes {
    std::string name;
    uint64_t size             = 0;
    uint64_t host_to_device   = 0;
    uint64_t device_to_host   = 0;
    uint64_t device_to_device = 0;
    uint64_t host_to_host     = 0;
    uint64_t jobs             = 0;

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
            one.device_to_device >> one.host_to_host >> one.jobs;
        EXPECT_FALSE(fields.fail()) << line;
        result.push_back(one);
    }
    return result;
}

bool contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

/* A transfer, and what the cards of both sides did for it. */
struct transfer {
    moved_bytes client;
    moved_bytes server;

    [[nodiscard]] bool is_get() const { return client.name.starts_with("get"); }
    /* Names tell the client's memory first. */
    [[nodiscard]] bool client_gaudi() const
    {
        return contains(client.name, "from gaudi");
    }
    [[nodiscard]] bool server_gaudi() const
    {
        return contains(client.name, "to gaudi");
    }
    [[nodiscard]] const moved_bytes &source() const
    {
        return is_get() ? server : client;
    }
    [[nodiscard]] const moved_bytes &target() const
    {
        return is_get() ? client : server;
    }
    [[nodiscard]] bool from_gaudi() const
    {
        return is_get() ? server_gaudi() : client_gaudi();
    }
    [[nodiscard]] bool to_gaudi() const
    {
        return is_get() ? client_gaudi() : server_gaudi();
    }
};

/* By the source's card into host memory that both processes have, and by the
 * target's out of it, in jobs of a chunk unless UCP cuts it into messages. */
void expect_once(const transfer &what, bool is_cut)
{
    const uint64_t size = what.client.size;
    const uint64_t jobs = (size + chunk - 1) / chunk;
    SCOPED_TRACE(what.client.name);
    EXPECT_EQ(what.from_gaudi() ? size : 0, what.source().device_to_host);
    EXPECT_EQ(what.from_gaudi() ? size : 0, what.source().sum());
    EXPECT_EQ(what.to_gaudi() ? size : 0, what.target().host_to_device);
    EXPECT_EQ(what.to_gaudi() ? size : 0, what.target().sum());
    if (!is_cut) {
        EXPECT_EQ(what.from_gaudi() ? jobs : 0, what.source().jobs);
        EXPECT_EQ(what.to_gaudi() ? jobs : 0, what.target().jobs);
    }
}

/* Protocol generation, traffic. */
using bytes_case = std::tuple<const char *, const char *>;

class ipc_bytes : public two_peers,
                  public ::testing::WithParamInterface<bytes_case> {
protected:
    /* UCP knows nothing of host memory here but what it is told with each
     * transfer. */
    void expect_all_once(
        const std::string &sizes, const std::string &scheme = "auto",
        const std::string &transports = "gaudi_copy,gaudi_ipc") const
    {
        const auto &[proto, traffic] = GetParam();
        const peers_result result =
            run_peers({traffic,
                       {"count", "plain", "sizes=" + sizes},
                       over(transports, proto, {{"UCX_RNDV_SCHEME", scheme}})});
        expect_all_sent(result);
        const std::vector<moved_bytes> client = parse(result.client.output);
        const std::vector<moved_bytes> server = parse(result.server.output);
        EXPECT_FALSE(client.empty());
        ASSERT_EQ(client.size(), server.size());
        for (size_t i = 0; i < client.size(); ++i) {
            EXPECT_EQ(client[i].name, server[i].name);
            expect_once({client[i], server[i]}, is_cut(client[i].name));
        }
    }

private:
    /* UCP 1.13's new protocols do it with synchronous sends, too. */
    static bool is_cut(const std::string &name)
    {
        const bool is_early =
            has_old_protocols && (std::get<0>(GetParam()) == std::string("y"));
        return contains(name, "eager") || (is_early && contains(name, "sync"));
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

TEST_P(ipc_message_bytes, move_once)
{
    expect_all_once("8,1000,300001,1048576,5000000");
}

TEST_P(ipc_message_bytes, move_once_beside_shared_memory)
{
    expect_all_once("1048576", "auto", "gaudi_copy,gaudi_ipc,sm");
}

TEST_P(ipc_message_bytes, move_once_however_one_has_them_pushed_or_pulled)
{
    expect_all_once("1048576", "get_zcopy");
    expect_all_once("1048576", "put_zcopy");
}

INSTANTIATE_TEST_SUITE_P(of, ipc_message_bytes,
                         ::testing::Combine(::testing::ValuesIn(protocols()),
                                            ::testing::Values("tag", "am")),
                         name_of);

TEST_P(ipc_rma_bytes, move_once)
{
    expect_all_once("8,5000,300001,1048576");
}

INSTANTIATE_TEST_SUITE_P(of, ipc_rma_bytes,
                         ::testing::Combine(::testing::ValuesIn(protocols()),
                                            ::testing::Values("rma")),
                         name_of);

} // namespace gaudi::test
