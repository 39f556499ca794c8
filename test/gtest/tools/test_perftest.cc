/* Stock ucx_perftest on device memory. */
#include "gtest/tools/fixture.h"

#include "common/process_state.h"

#include <algorithm>
#include <memory>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* One run between two processes. */
struct perftest_case {
    std::string tls;
    std::string test;
    std::string memory;
    size_t size;
    environment more;
};

struct both_sides {
    process_result server;
    process_result client;
};

class perftest : public tools {
protected:
    both_sides run_pair(const perftest_case &what)
    {
        environment variables = what.more;
        variables["UCX_TLS"]  = what.tls;
        /* One level below warnings, too: lanes that are given up. */
        variables.try_emplace("UCX_LOG_LEVEL", "diag");

        std::unique_ptr<process> server;
        arguments command;
        for (unsigned attempt = 0; attempt < 5; ++attempt) {
            const unsigned short port = find_free_port();
            const bool large          = (what.size >= (1ul << 20));
            command                   = under_launcher(
                                  {"ucx_perftest", "-t", what.test, "-m", what.memory, "-s",
                                   std::to_string(what.size), "-p", std::to_string(port), "-n",
                 large ? "3" : "20", "-w", "1"});
            server = std::make_unique<process>(command, with(variables));
            const bool listens = eventually(
                [&] { return has_listener(port) || server->has_ended(); });
            if (listens && !server->has_ended()) {
                break;
            }
            /* Somebody may have taken the port meanwhile. */
        }
        command.emplace_back("127.0.0.1");
        both_sides result;
        result.client = run(command, with(variables));
        result.server = server->wait();
        return result;
    }

    void expect_success(const perftest_case &what)
    {
        const both_sides sides = run_pair(what);
        EXPECT_TRUE(is_quiet_success(sides.server)) << "server";
        EXPECT_TRUE(is_quiet_success(sides.client)) << "client";
        EXPECT_EQ(1u, lines_with(sides.client.output, "Final:").size())
            << sides.client.output;
    }
};

/* Transport of the messages, test, memory, size. */
using matrix_case =
    std::tuple<const char *, const char *, const char *, size_t>;

class perftest_matrix : public perftest,
                        public ::testing::WithParamInterface<matrix_case> {};

std::string name_of(const ::testing::TestParamInfo<matrix_case> &info)
{
    const auto &[tls, test, memory, size] = info.param;
    std::string name = std::string(tls) + "_" + test + "_" + memory + "_" +
                       std::to_string(size);
    std::replace(name.begin(), name.end(), ',', '_');
    return name;
}

} // namespace

TEST_P(perftest_matrix, finishes_without_a_complaint)
{
    const auto &[tls, test, memory, size] = GetParam();
    expect_success({std::string("gaudi_copy,") + tls, test, memory, size, {}});
}

INSTANTIATE_TEST_SUITE_P(
    tag, perftest_matrix,
    ::testing::Combine(::testing::Values("sm", "tcp"),
                       ::testing::Values("tag_bw", "tag_lat"),
                       ::testing::Values("gaudi", "gaudi,host", "host,gaudi"),
                       ::testing::Values(1ul, 8ul, 4096ul, 65536ul, 1ul << 20,
                                         64ul << 20)),
    name_of);

TEST_F(perftest, runs_with_the_memory_type_cache_on_and_off)
{
    for (const char *cache : {"y", "n"}) {
        SCOPED_TRACE(cache);
        expect_success({"gaudi_copy,sm",
                        "tag_bw",
                        "gaudi",
                        65536,
                        {{"UCX_MEMTYPE_CACHE", cache}}});
    }
}

TEST_F(perftest, runs_with_the_new_protocols)
{
    for (const char *memory : {"gaudi", "gaudi,host", "host,gaudi"}) {
        for (const char *tls : {"gaudi_copy,sm", "gaudi_copy,tcp"}) {
            SCOPED_TRACE(std::string(memory) + " " + tls);
            expect_success(
                {tls, "tag_lat", memory, 1 << 20, {{"UCX_PROTO_ENABLE", "y"}}});
        }
    }
}

TEST_F(perftest, runs_in_one_process_with_every_card_open)
{
    const process_result alone =
        emulated({"ucx_perftest", "-t", "tag_lat", "-l", "-m", "gaudi", "-n",
                  "20", "-w", "1"},
                 {{"UCX_TLS", "gaudi_copy,sm"}, {"UCX_GAUDI_DEVICES", "all"}});
    EXPECT_TRUE(is_quiet_success(alone));
    EXPECT_THAT(alone.output, HasSubstr("Final:"));
}

TEST_F(perftest, lists_the_memory_type)
{
    const process_result help = emulated({"ucx_perftest", "-h"});
    EXPECT_EQ(1u, lines_with(help.output, "gaudi - ").size()) << help.output;
    const process_result without = run({"ucx_perftest", "-h"}, with());
    EXPECT_EQ(0u, lines_with(without.output, "gaudi").size());
}

TEST_F(perftest, measures_the_transport_itself_in_one_process)
{
    /* Stock UCT tests have no get with short data. */
    const std::vector<arguments> layouts = {
        {"put_lat", "short"}, {"put_lat", "bcopy"}, {"put_lat", "zcopy"},
        {"put_bw", "short"},  {"put_bw", "bcopy"},  {"put_bw", "zcopy"},
        {"get", "bcopy"},     {"get", "zcopy"}};
    for (const arguments &layout : layouts) {
        for (const char *size : {"1", "4096", "65536"}) {
            SCOPED_TRACE(layout[0] + " " + layout[1] + " " + size);
            const process_result result =
                emulated({"ucx_perftest", "-l", "-t", layout[0], "-D",
                          layout[1], "-x", "gaudi_cpy", "-d", "gaudi0", "-m",
                          "gaudi", "-s", size, "-n", "20", "-w", "1"});
            EXPECT_TRUE(is_quiet_success(result));
            EXPECT_THAT(result.output, HasSubstr("Final:"));
        }
    }
}

} // namespace gaudi::test
