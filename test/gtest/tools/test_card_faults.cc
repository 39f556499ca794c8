/* SPDX-License-Identifier: BSD-3-Clause */
/* Stock ucx_perftest, one side of which loses its card. */
#include "common/process_state.h"
#include "gtest/tools/leftovers.h"
#include "gtest/tools/perftest.h"
#include "gtest/tools/release.h"

#include <csignal>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

struct fault_case {
    const char *name;
    const char *test;
    const char *size;
    const char *scheme; /* of the rendezvous */
    bool of_server;     /* it loses its card */
};

void PrintTo(const fault_case &what, std::ostream *to)
{
    *to << what.name;
}

constexpr fault_case cases[] = {
    {"pulled", "tag_bw", "1048576", "get_zcopy", true},
    {"pushed", "tag_bw", "1048576", "put_zcopy", false},
    {"copied_on_the_way_out", "tag_lat", "8", "auto", false},
    {"copied_on_the_way_in", "tag_lat", "8", "auto", true},
};

/* Ours do not tell of each operation that fails on a lost card. */
size_t own_errors(const std::string &output)
{
    return lines_with(output, "a DMA copy of").size() +
           lines_with(output, "cannot submit a copy").size() +
           lines_with(output, "on a card that is lost").size();
}

class card_faults : public perftest,
                    public no_shared_memory_left,
                    public ::testing::WithParamInterface<fault_case> {};

constexpr char told[] = "error handler called with status";

/* The driver ends the process whose card was reset, a second later; before,
 * UCX from 1.14 on may do so, when it cannot pack a message, or ucx_perftest
 * from 1.16 on, when it is told. The other one is told, which is the end of its
 * endpoint, and from 1.16 on of ucx_perftest. */
TEST_P(card_faults, are_told_to_the_other_side)
{
    const perftest_case what{GetParam().test,
                             "gaudi",
                             GetParam().size,
                             "gaudi_ipc",
                             default_protocols,
                             {"-e"},
                             {{"UCX_RNDV_SCHEME", GetParam().scheme},
                              {"UCX_KEEPALIVE_INTERVAL", "500ms"},
                              {"UCX_LOG_LEVEL", "warn"}},
                             1u << 30};
    const environment faulty{{"HLTHUNK_EMU_FAULTS", "job#500=kill"}};
    const environment none;
    const bool of_server = GetParam().of_server;
    const running pair =
        start_pair(what, of_server ? faulty : none, of_server ? none : faulty);
    process &other = of_server ? *pair.client : *pair.server;
    const process_result loser =
        (of_server ? pair.server : pair.client)->wait();
    if (!ucx_is_before(1, 16) && (loser.signal == 0)) {
        EXPECT_EQ(EXIT_FAILURE, loser.exit_code) << loser.output;
        EXPECT_THAT(loser.output, HasSubstr(told));
    } else if (loser.signal != SIGABRT) {
        EXPECT_EQ(SIGKILL, loser.signal) << loser.output;
    } else {
        EXPECT_THAT(loser.output, HasSubstr("Fatal: mem type "));
    }
    EXPECT_THAT(loser.output, HasSubstr(" was reset: what was in its memory"));
    EXPECT_EQ(1u, own_errors(loser.output)) << loser.output;

    EXPECT_TRUE(eventually([&] {
        return other.output().find(told) != std::string::npos;
    })) << other.output();
    (void)other.stop();
}

INSTANTIATE_TEST_SUITE_P(of, card_faults, ::testing::ValuesIn(cases),
                         [](const auto &tested) { return tested.param.name; });

} // namespace

} // namespace gaudi::test
