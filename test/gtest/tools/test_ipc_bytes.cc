/* SPDX-License-Identifier: BSD-3-Clause */
/* Which card moves the bytes of a transfer over gaudi_ipc, and how: once, none
 * when both sides are host memory, and in jobs that are longer than any staging
 * chunk unless the card has to reach host memory of another process. */
#include "common/emulator.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include <cstdint>
#include <sstream>

namespace gaudi::test {

namespace {

constexpr uint64_t chunk = uint64_t{1} << 16; /* of staging memory */
constexpr uint64_t piece = uint64_t{1} << 20; /* the longest job */

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

enum class mover { client, server };

/* One card does it all, from where the bytes are to where they belong. What it
 * writes to another one's memory it reads back, once. */
void expect_direct(const transfer &what, mover by)
{
    const bool is_client     = (by == mover::client);
    const moved_bytes &moved = is_client ? what.client : what.server;
    const moved_bytes &other = is_client ? what.server : what.client;
    const uint64_t size      = moved.size;
    const bool from          = what.from_gaudi();
    const bool to            = what.to_gaudi();
    const bool is_posted     = to && (&moved == &what.source());
    const uint64_t read_back = is_posted ? read_back_bytes(size) : 0;
    SCOPED_TRACE(moved.name);
    EXPECT_EQ(0u, other.sum());
    EXPECT_EQ(0u, moved.host_to_host);
    EXPECT_EQ((from && to) ? size : 0, moved.device_to_device);
    EXPECT_EQ((!from && to) ? size : 0, moved.host_to_device);
    EXPECT_EQ(((from && !to) ? size : 0) + read_back, moved.device_to_host);
    const bool reaches_device =
        is_client ? what.server_gaudi() : what.client_gaudi();
    const uint64_t job = reaches_device ? piece : chunk;
    EXPECT_EQ(((from || to) ? (size + job - 1) / job : 0) + (is_posted ? 1 : 0),
              moved.jobs);
}

/* By the source's card into a message and by the target's out of it. */
void expect_through_the_queue(const transfer &what)
{
    const uint64_t size = what.client.size;
    SCOPED_TRACE(what.client.name);
    EXPECT_EQ(what.from_gaudi() ? size : 0, what.source().device_to_host);
    EXPECT_EQ(what.from_gaudi() ? size : 0, what.source().sum());
    EXPECT_EQ(what.to_gaudi() ? size : 0, what.target().host_to_device);
    EXPECT_EQ(what.to_gaudi() ? size : 0, what.target().sum());
}

/* As later releases like: they pull some small messages. */
void expect_once_or_through_the_queue(const transfer &what)
{
    const bool client_moved = (what.client.sum() != 0);
    const bool server_moved = (what.server.sum() != 0);
    if (client_moved == server_moved) {
        expect_through_the_queue(what);
    } else {
        expect_direct(what, client_moved ? mover::client : mover::server);
    }
}

/* Protocol generation, traffic. */
using bytes_case = std::tuple<const char *, const char *>;

class ipc_bytes : public two_peers,
                  public ::testing::WithParamInterface<bytes_case> {
protected:
    [[nodiscard]] static bool is_new()
    {
        return std::get<0>(GetParam()) == std::string("y");
    }

    /* The new protocols as they are where they are not UCX's default: measured
     * with UCP 1.13, and as is_new() alone with 1.18. */
    [[nodiscard]] static bool is_early()
    {
        return is_new() && has_old_protocols;
    }

    /* UCP knows nothing of host memory here but what it is told with each
     * transfer.
     * @param route  Between the two cards. */
    [[nodiscard]] std::vector<transfer>
    count(const std::string &sizes, const std::string &scheme = "auto",
          const std::string &transports = "gaudi_copy,gaudi_ipc",
          const std::string &route      = "pcie") const
    {
        const auto &[proto, traffic] = GetParam();
        const peers_result result =
            run_peers({traffic,
                       {"count", "plain", "sizes=" + sizes},
                       over(transports, proto,
                            {{"UCX_RNDV_SCHEME", scheme},
                             {"UCX_GAUDI_IPC_P2P", "y"},
                             {"UCX_GAUDI_IPC_ROUTES", route}})});
        expect_all_sent(result);
        const std::vector<moved_bytes> client = parse(result.client.output);
        const std::vector<moved_bytes> server = parse(result.server.output);
        EXPECT_FALSE(client.empty());
        EXPECT_EQ(client.size(), server.size());
        std::vector<transfer> both;
        for (size_t i = 0; i < std::min(client.size(), server.size()); ++i) {
            EXPECT_EQ(client[i].name, server[i].name);
            both.push_back({client[i], server[i]});
        }
        return both;
    }

    /* Without PCIe between the cards. */
    void expect_through_host_memory(const std::string &sizes) const
    {
        for (const transfer &what :
             count(sizes, "auto", "gaudi_copy,gaudi_ipc", "host")) {
            expect_through_the_queue(what);
        }
    }

    static void expect_large_message(const transfer &what, mover by)
    {
        /* The first are never more than copies through the queue, and early
         * protocols send the second no other way. */
        const std::string &name = what.client.name;
        if (contains(name, "eager") || (is_early() && contains(name, "sync"))) {
            expect_through_the_queue(what);
        } else {
            expect_direct(what, by);
        }
    }

    /* By rendezvous: what is read is there, so the receiver pulls. But where
     * it can, host memory is sent by the card of its own process, which reaches
     * it without staging. */
    static mover of_message(const transfer &what,
                            bool host_can = has_types_in_estimates)
    {
        return (host_can && !what.from_gaudi()) ? mover::client : mover::server;
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
    for (const transfer &what : count("300001,1048576,5000000")) {
        expect_large_message(what, of_message(what));
    }
}

/* Where UCP does not tell the types, gaudi_ipc does not register host memory
 * then, which leaves no choice. The old protocols need it. */
TEST_P(ipc_message_bytes, of_large_messages_move_once_beside_shared_memory)
{
    for (const transfer &what :
         count("1048576", "auto", "gaudi_copy,gaudi_ipc,sm")) {
        expect_large_message(what, of_message(what, !has_old_protocols));
    }
}

TEST_P(ipc_message_bytes, of_large_messages_are_pushed_or_pulled_as_one_likes)
{
    for (const transfer &what : count("1048576", "get_zcopy")) {
        expect_large_message(what, mover::server);
    }
    for (const transfer &what : count("1048576", "put_zcopy")) {
        expect_large_message(what, mover::client);
    }
}

/* From the one card and to the other one, each by its own. */
TEST_P(ipc_message_bytes, go_through_host_memory_once)
{
    expect_through_host_memory("8,1000,300001,1048576");
}

TEST_P(ipc_message_bytes, of_small_messages_move_once_or_through_the_queue)
{
    for (const transfer &what : count("8,1000")) {
        const std::string &name  = what.client.name;
        const bool in_rendezvous = contains(name, "rendezvous");
        const bool may_be_pulled = is_early() && what.from_gaudi() &&
                                   !contains(name, "eager") &&
                                   !contains(name, "sync");
        if (!has_old_protocols) {
            expect_once_or_through_the_queue(what);
        } else if (in_rendezvous || may_be_pulled) {
            expect_direct(what, of_message(what));
        } else {
            expect_through_the_queue(what);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(of, ipc_message_bytes,
                         ::testing::Combine(::testing::ValuesIn(protocols()),
                                            ::testing::Values("tag", "am")),
                         name_of);

TEST_P(ipc_rma_bytes, move_once)
{
    for (const transfer &what : count("8,5000,300001,1048576")) {
        expect_direct(what, mover::client);
    }
}

TEST_P(ipc_rma_bytes, go_through_host_memory_once)
{
    expect_through_host_memory("8,5000,300001,1048576");
}

INSTANTIATE_TEST_SUITE_P(of, ipc_rma_bytes,
                         ::testing::Combine(::testing::ValuesIn(protocols()),
                                            ::testing::Values("rma")),
                         name_of);

} // namespace gaudi::test
