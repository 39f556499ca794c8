/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/perftest.h"

#include "common/process_state.h"

#include <algorithm>
#include <thread>

namespace gaudi::test {

arguments no_mpi_job()
{
    static const bool is_built_with_mpi =
        !lines_with(run({"ucx_perftest", "-h"}).output, "MPI mode").empty();
    return is_built_with_mpi ? arguments{"-P", "0"} : arguments{};
}

arguments perftest::command_of(const perftest_case &what) const
{
    arguments program{what.program, "-w", "1"};
    if (what.batch.empty()) {
        program = joined(program, {"-t", what.test, "-m", what.memory, "-s",
                                   what.size, "-n", "10"});
    } else {
        std::string text;
        for (const std::string &line : what.batch) {
            text +=
                std::to_string(&line - what.batch.data()) + " " + line + "\n";
        }
        program = joined(program, {"-b", files_.file("batch", text)});
    }
    return joined(joined(under_launcher(program), what.options), no_mpi_job());
}

namespace {

/* As it would be typed. */
std::string text_of(const perftest_case &what)
{
    std::string text = what.batch.empty() ? what.test + " -m " + what.memory +
                                                " -s " + what.size
                                          : "a batch";
    for (const std::string &option : what.options) {
        text += " " + option;
    }
    return text + ", UCX_TLS=gaudi_copy," + what.tls +
           " UCX_PROTO_ENABLE=" + what.proto;
}

} // namespace

process_options perftest::options_of(const perftest_case &what) const
{
    environment variables =
        over("gaudi_copy," + what.tls, what.proto, what.more);
    /* Else Open MPI leaves a file behind for one that is killed. */
    variables.try_emplace("OMPI_MCA_btl", "self");
    /* One level below warnings, too: lanes that are given up. */
    variables.try_emplace("UCX_LOG_LEVEL", "diag");
    return with(variables);
}

perftest::running perftest::start_pair(const perftest_case &what) const
{
    running result;
    const unsigned short port = find_free_port();
    arguments command = joined(command_of(what), {"-p", std::to_string(port)});
    result.server     = std::make_unique<process>(command, options_of(what));
    EXPECT_TRUE(eventually(
        [&] { return has_listener(port) || result.server->has_ended(); }));
    command.emplace_back("127.0.0.1");
    result.client = std::make_unique<process>(command, options_of(what));
    return result;
}

namespace {

void expect_end(const process_result &result, const perftest_case &what)
{
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(
        has_lines(std::max<size_t>(what.batch.size(), 1), "Final:", result));
}

} // namespace

void perftest::expect_success(const perftest_case &what) const
{
    SCOPED_TRACE(text_of(what));
    const running pair = start_pair(what);
    /* Nobody answers one whose other side has crashed. */
    while (!pair.client->has_ended() && !pair.server->has_ended() &&
           !pair.client->is_late()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool client_first = pair.client->has_ended();
    const process_result first =
        (client_first ? pair.client : pair.server)->wait();
    process &other = client_first ? *pair.server : *pair.client;
    const process_result second =
        (first.exit_code == 0) ? other.wait() : other.stop();
    EXPECT_TRUE(is_quiet_success(client_first ? second : first)) << "server";
    expect_end(client_first ? first : second, what);
}

void perftest::expect_success_alone(perftest_case what) const
{
    SCOPED_TRACE(text_of(what) + " -l");
    what.options.emplace_back("-l");
    expect_end(run(command_of(what), options_of(what)), what);
}

} // namespace gaudi::test
