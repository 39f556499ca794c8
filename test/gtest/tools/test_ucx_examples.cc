/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX's own example programs, on host memory, notice nothing of the module. */
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include "common/process_state.h"

#include <csignal>
#include <filesystem>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

const std::string programs = GAUDI_TOOLS_DIR "/";

/* The message of both programs. */
std::string message(size_t size)
{
    std::string text;
    for (size_t i = 0; i + 1 < size; ++i) {
        text += static_cast<char>('A' + i % 26);
    }
    return text;
}

class ucx_example : public tools, public no_shared_memory_left {
protected:
    void SetUp() override
    {
        ASSERT_TRUE(std::filesystem::exists(programs + "ucp_hello_world"))
            << "CMake did not find UCX's examples; its status lines say where "
               "it looks for them";
    }

    peers_result run_pair(const arguments &both, const std::string &transports)
    {
        environment variables = {{"UCX_LOG_LEVEL", "diag"}};
        if (!transports.empty()) {
            variables["UCX_TLS"] = "gaudi_copy," + transports;
        }
        const unsigned short port = find_free_port();
        const arguments command =
            under_launcher(joined(both, {"-p", std::to_string(port)}));
        process server(command, with(variables));
        EXPECT_TRUE(eventually(
            [&] { return has_listener(port) || server.has_ended(); }));
        process client(joined(command, {"-n", "127.0.0.1"}), with(variables));
        peers_result result;
        result.client = client.wait();
        result.server = server.wait();
        return result;
    }

    /* Both ended well; one of them printed the message. */
    static void expect_success(const peers_result &sides, size_t size)
    {
        EXPECT_TRUE(is_quiet_success(sides.client)) << "client";
        EXPECT_TRUE(is_quiet_success(sides.server)) << "server";
        const std::string output = sides.client.output + sides.server.output;
        EXPECT_THAT(output, HasSubstr(success));
        EXPECT_NE(npos, output.find(message(size)));
        for (const char *complaint : {"ailed to ", "nable to ", "Wrong "}) {
            for (const std::string &line : lines_with(output, complaint)) {
                EXPECT_TRUE(is_stock_complaint(line) ||
                            (line.find("rdmacm") != npos) ||
                            (line.find("failed to close ep") != npos))
                    << line;
            }
        }
    }

private:
    static constexpr size_t npos    = std::string::npos;
    static constexpr char success[] = " TEST SUCCESS --";
};

} // namespace

/* Polling, waiting on the event descriptor, and waiting. */
TEST_F(ucx_example, of_ucp_brings_the_message_over)
{
    const struct {
        const char *transports;
        const char *mode;
        size_t size;
    } cases[] = {{"", "-b", 1ul << 20},
                 {"", "-f", 16},
                 {"sm", "-w", 1ul << 20},
                 {"tcp", "-w", 16}};
    for (const auto &[transports, mode, size] : cases) {
        SCOPED_TRACE(std::string(transports) + mode);
        expect_success(run_pair({programs + "ucp_hello_world", mode, "-s",
                                 std::to_string(size)},
                                transports),
                       size);
    }
}

/* Short and buffered copies. */
TEST_F(ucx_example, of_uct_brings_the_message_over)
{
    for (const char *kind : {"-i", "-b"}) {
        expect_success(run_pair({programs + "uct_hello_world", "-d", "memory",
                                 "-t", "posix", kind},
                                {}),
                       16);
    }
}

TEST_F(ucx_example, server_outlives_a_client_that_was_killed)
{
    for (const char *transports : {"tcp", ""}) {
        SCOPED_TRACE(transports);
        const peers_result sides = run_pair(
            {programs + "ucp_hello_world", "-e", "keepalive"}, transports);
        EXPECT_EQ(SIGKILL, sides.client.signal) << sides.client.output;
        EXPECT_FALSE(sides.client.timed_out);
        EXPECT_TRUE(is_quiet_success(sides.server));
    }
}

} // namespace gaudi::test
