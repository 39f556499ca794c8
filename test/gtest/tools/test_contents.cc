/* Messages between two processes arrive as they were sent, over stock UCP. */
#include "gtest/tools/fixture.h"

#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

struct sockets {
    int ends[2] = {-1, -1};

    sockets()
    {
        EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    }
    ~sockets() { close_both(); }
    sockets(const sockets &)            = delete;
    sockets &operator=(const sockets &) = delete;

    void close_both()
    {
        for (int &end : ends) {
            close(end);
            end = -1;
        }
    }
};

/* Transport, memory of either side, memory type cache, new protocols. */
using contents_case =
    std::tuple<const char *, std::pair<const char *, const char *>,
               const char *, const char *>;

class contents : public tools,
                 public ::testing::WithParamInterface<contents_case> {};

std::string name_of(const ::testing::TestParamInfo<contents_case> &test)
{
    const auto &[tls, memory, cache, proto] = test.param;
    return std::string(tls) + "_" + memory.first + "_to_" + memory.second +
           "_cache_" + cache + "_proto_" + proto;
}

} // namespace

TEST_P(contents, arrive_unchanged_and_touch_nothing_else)
{
    const auto &[tls, memory, cache, proto] = GetParam();
    sockets connection;
    process_options options =
        with({{"UCX_TLS", std::string("gaudi_copy,") + tls},
              {"UCX_MEMTYPE_CACHE", cache},
              {"UCX_PROTO_ENABLE", proto}});

    options.inherited_fd = connection.ends[0];
    process receiver(under_launcher({GAUDI_TOOLS_DIR "/ucp_peer", "receiver",
                                     memory.first, memory.second}),
                     options);
    options.inherited_fd = connection.ends[1];
    process sender(under_launcher({GAUDI_TOOLS_DIR "/ucp_peer", "sender",
                                   memory.first, memory.second}),
                   options);
    connection.close_both();

    const process_result sent     = sender.wait();
    const process_result received = receiver.wait();
    EXPECT_TRUE(is_quiet_success(sent)) << "sender";
    EXPECT_TRUE(is_quiet_success(received)) << "receiver";
    EXPECT_THAT(sent.output, HasSubstr("all sent"));
    EXPECT_THAT(received.output, HasSubstr("all received"));
}

INSTANTIATE_TEST_SUITE_P(
    of_messages, contents,
    ::testing::Combine(::testing::Values("sm", "tcp"),
                       ::testing::Values(std::pair("gaudi", "gaudi"),
                                         std::pair("gaudi", "host"),
                                         std::pair("host", "gaudi"),
                                         std::pair("host", "host")),
                       ::testing::Values("y", "n"),
                       ::testing::Values("n", "y")),
    name_of);

} // namespace gaudi::test
