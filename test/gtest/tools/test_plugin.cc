/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX's own loading of plugins, which it has from 1.22 on. */
#include "gtest/tools/fixture.h"

#include "common/process_state.h"

#include <memory>

namespace gaudi::test {

namespace {

class plugin : public tools {
protected:
    [[nodiscard]] process_options found(environment variables = {}) const
    {
        variables["UCX_PLUGIN_PATH"] =
            std::string(library) + "/ucx-gaudi/plugin";
        variables["UCX_GAUDI_DRIVER"] = "emulator";
        return with(variables);
    }

    [[nodiscard]] std::unique_ptr<process>
    start_perftest(const arguments &rest) const
    {
        const arguments command =
            joined({"ucx_perftest", "-t", "tag_bw", "-m", "gaudi", "-s",
                    "65536", "-n", "20", "-w", "1"},
                   rest);
        return std::make_unique<process>(
            command, found({{"UCX_TLS", "gaudi_cpy,gaudi_ipc,sm,tcp"}}));
    }
};

} // namespace

TEST_F(plugin, is_loaded_by_ucx)
{
    EXPECT_TRUE(
        is_quiet_success(run({"ucx_info", "-d"}, found()),
                         {"Transport: gaudi_cpy", "Transport: gaudi_ipc"}));
}

TEST_F(plugin, frees_nothing_that_libc_has_allocated)
{
    EXPECT_TRUE(is_quiet_success(
        run({GAUDI_TOOLS_DIR "/late_ucx", "global"},
            found({{"UCX_MODULES", "hlthunk"},
                   {"LD_PRELOAD", preloadable(strict_allocator)}})),
        {"gaudi_cpy/gaudi0"}));
}

/* It knows the memory type from the plugin that it loads itself. */
TEST_F(plugin, serves_a_pair_of_ucx_perftest)
{
    const std::string port = std::to_string(find_free_port());
    auto server            = start_perftest({"-p", port});
    EXPECT_TRUE(eventually([&] {
        return has_listener(static_cast<unsigned short>(std::stoul(port))) ||
               server->has_ended();
    }));
    auto client = start_perftest({"-p", port, "127.0.0.1"});
    (void)eventually(
        [&] { return client->has_ended() || server->has_ended(); });
    const process_result sent = client->wait();
    EXPECT_TRUE(is_quiet_success(sent));
    EXPECT_TRUE(is_quiet_success(server->wait()));
    EXPECT_TRUE(has_lines(1, "Final:", sent));
}

TEST_F(plugin, says_once_which_names_ucx_does_not_know)
{
    const process_result result = run({"ucx_perftest", "-t", "tag_lat", "-m",
                                       "gaudi", "-n", "10", "-w", "1", "-l"},
                                      found({{"UCX_TLS", "gaudi_copy,sm"}}));
    EXPECT_TRUE(has_lines(1, "write UCX_TLS=gaudi_cpy,sm", result));
}

} // namespace gaudi::test
