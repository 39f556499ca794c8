/* SPDX-License-Identifier: BSD-3-Clause */
/* Stock ucx_perftest between two software boxes, over external ports alone. */
#include "gtest/tools/perftest.h"

#include "common/process_state.h"
#include "gtest/tools/two_peers.h"

#include <csignal>
#include <cstdlib>
#include <iterator>

namespace gaudi::test {

namespace {

/* Of the server, which is in a box of its own. */
environment another_box()
{
    return {{"HLTHUNK_EMU_NODE",
             std::getenv("HLTHUNK_EMU_NODE") + std::string("-server")}};
}

class ipc_boxes : public perftest {
protected:
    static perftest_case over_ports(const std::string &test,
                                    const std::string &memory,
                                    const std::string &size,
                                    const std::string &proto)
    {
        perftest_case what{test, memory, size, "gaudi_ipc", proto};
        what.more = {{"HLTHUNK_EMU_PORTS", "all"},
                     {"UCX_GAUDI_IPC_BOXES", "y"}};
        return what;
    }

    void expect_arrival(const perftest_case &what) const
    {
        SCOPED_TRACE(text_of(what));
        const running pair = start_pair(what, another_box());
        EXPECT_TRUE(eventually([&] { return pair.client->has_ended(); }));
        const process_result client = pair.client->wait();
        EXPECT_TRUE(is_quiet_success(client)) << "client";
        EXPECT_TRUE(is_quiet_success(pair.server->wait())) << "server";
        EXPECT_TRUE(has_lines(1, "Final:", client));
    }
};

} // namespace

TEST_F(ipc_boxes, have_messages_of_all_kinds)
{
    for (const char *proto : protocols()) {
        for (const char *test : message_tests) {
            expect_arrival(over_ports(test, "host", "8", proto));
        }
        for (const char *memory : memory_pairs) {
            expect_arrival(over_ports("tag_bw", memory, "300000", proto));
        }
    }
}

TEST_F(ipc_boxes, have_puts_and_gets)
{
    for (const char *test : rma_tests) {
        for (const char *size : {"8", "65536", "1048576"}) {
            for (const char *memory : {"host", "gaudi", "host,gaudi"}) {
                expect_arrival(
                    over_ports(test, memory, size, default_protocols));
            }
            expect_arrival(over_ports(test, "gaudi", size, "y"));
            expect_arrival(over_ports(test, "gaudi,host", size, "y"));
        }
    }
}

TEST_F(ipc_boxes, wake_programs_that_sleep)
{
    for (const char *proto : protocols()) {
        for (const char *test : message_tests) {
            for (const char *size : {"8", "300000"}) {
                perftest_case what = over_ports(test, "host", size, proto);
                what.options       = {"-E", "sleep"};
                expect_arrival(what);
            }
        }
        perftest_case what = over_ports("tag_lat", "gaudi", "300000", proto);
        what.options       = {"-E", "sleep"};
        expect_arrival(what);
    }
}

TEST_F(ipc_boxes, go_by_the_ports_that_are_up)
{
    perftest_case what = over_ports("tag_bw", "host", "8", default_protocols);
    what.more.emplace("HLTHUNK_EMU_FAULTS", "port=down@0.8");
    expect_arrival(what);
}

TEST_F(ipc_boxes, are_left_only_if_wished)
{
    perftest_case what = over_ports("tag_bw", "host", "8", default_protocols);
    what.more.erase("UCX_GAUDI_IPC_BOXES");
    const running pair = start_pair(what, another_box());
    EXPECT_TRUE(eventually([&] { return pair.client->has_ended(); }));
    EXPECT_NE(pair.client->wait().exit_code, 0);
    (void)kill(pair.server->pid(), SIGKILL);
}

TEST_F(ipc_boxes, hear_of_a_peer_that_is_killed)
{
    perftest_case what =
        over_ports("tag_bw", "host", "8192", default_protocols);
    what.options    = {"-e"};
    what.iterations = 1'000'000'000;
    what.more.emplace("UCX_LOG_LEVEL", "info");
    what.more.emplace("UCX_LOG_FILE", "stderr");
    const running pair   = start_pair(what, another_box());
    const auto client_at = [&](const char *text) {
        return eventually([&] {
            return pair.client->output().find(text) != std::string::npos;
        });
    };
    EXPECT_TRUE(client_at("tag(gaudi_ipc/boxes)"));
    EXPECT_TRUE(client_at("[thread 0]")); /* once messages have gone */
    (void)kill(pair.server->pid(), SIGKILL);
    EXPECT_TRUE(client_at("error handler called with status -80"))
        << pair.client->output();
    (void)kill(pair.client->pid(), SIGKILL); /* it goes on and on */
}

class ipc_boxes_bytes : public two_peers {};

TEST_F(ipc_boxes_bytes, arrive_as_they_were_sent)
{
    for (const char *proto : protocols()) {
        peers_case what{"tag,pieces,am,stream",
                        {"few", "peer-errors"},
                        over("gaudi_copy,gaudi_ipc", proto)};
        what.variables.emplace("HLTHUNK_EMU_PORTS", "all");
        what.variables.emplace("UCX_GAUDI_IPC_BOXES", "y");
        what.server_variables = another_box();
        SCOPED_TRACE(proto);
        expect_all_sent(run_peers(what));
    }
}

} // namespace gaudi::test
