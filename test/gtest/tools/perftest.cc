/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/perftest.h"

#include "common/process_state.h"

#include <utility>

namespace gaudi::test {

arguments no_mpi_job()
{
    static const bool is_built_with_mpi =
        !lines_with(run({"ucx_perftest", "-h"}).output, "MPI mode").empty();
    return is_built_with_mpi ? arguments{"-P", "0"} : arguments{};
}

namespace {

arguments command_of(const perftest_case &what)
{
    arguments command = under_launcher(
        {what.program, "-t", what.test, "-m", what.memory, "-s", what.size,
         "-n", std::to_string(what.iterations), "-w", "1"});
    return joined(joined(command, what.options), no_mpi_job());
}

} // namespace

std::string text_of(const perftest_case &what)
{
    std::string text = what.test + " -m " + what.memory + " -s " + what.size;
    for (const std::string &option : what.options) {
        text += " " + option;
    }
    return text + ", UCX_TLS=gaudi_copy," + what.tls +
           " UCX_PROTO_ENABLE=" + what.proto;
}

process_options perftest::options_of(const perftest_case &what,
                                     environment more) const
{
    more.insert(what.more.begin(), what.more.end());
    environment variables =
        over("gaudi_copy," + what.tls, what.proto, std::move(more));
    /* Else Open MPI leaves a file behind for one that is killed. */
    variables.try_emplace("OMPI_MCA_btl", "self");
    /* One level below warnings, too: lanes that are given up. */
    variables.try_emplace("UCX_LOG_LEVEL", "diag");
    return with(variables);
}

perftest::running perftest::start_pair(const perftest_case &what,
                                       const environment &of_server,
                                       const environment &of_client) const
{
    running result;
    const unsigned short port = find_free_port();
    arguments command = joined(command_of(what), {"-p", std::to_string(port)});
    result.server =
        std::make_unique<process>(command, options_of(what, of_server));
    EXPECT_TRUE(eventually(
        [&] { return has_listener(port) || result.server->has_ended(); }));
    command.emplace_back("127.0.0.1");
    result.client =
        std::make_unique<process>(command, options_of(what, of_client));
    return result;
}

void perftest::expect_success(const perftest_case &what) const
{
    SCOPED_TRACE(text_of(what));
    const running pair = start_pair(what);
    /* Nobody answers one whose other side has crashed. */
    const auto one_has_ended = [&] {
        return pair.client->has_ended() || pair.server->has_ended();
    };
    EXPECT_TRUE(eventually(one_has_ended) || eventually(one_has_ended));
    const process_result client = pair.client->wait();
    const process_result server = pair.server->wait();
    EXPECT_TRUE(is_quiet_success(server)) << "server";
    EXPECT_TRUE(is_quiet_success(client)) << "client";
    EXPECT_TRUE(has_lines(1, "Final:", client));
}

void perftest::expect_success_alone(perftest_case what) const
{
    SCOPED_TRACE(text_of(what) + " -l");
    what.options.emplace_back("-l");
    const process_result alone = run(command_of(what), options_of(what));
    EXPECT_TRUE(is_quiet_success(alone));
    EXPECT_TRUE(has_lines(1, "Final:", alone));
}

} // namespace gaudi::test
