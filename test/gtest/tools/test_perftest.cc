/* SPDX-License-Identifier: BSD-3-Clause */
/* Stock ucx_perftest on device memory. */
#include "gtest/tools/perftest.h"

#include "common/process_state.h"

#include <algorithm>
#include <csignal>
#include <iterator>

namespace gaudi::test {

namespace {

constexpr const char *sizes[] = {"8", "4096", "65536", "65537", "1048576"};

/* With "-M single", ucx_perftest uses workers in other threads than the one
 * that made them. From 1.18 on UCX has an assertion against that, without this
 * module, too. */
constexpr bool can_move_single_workers = ucx_is_before(1, 18);

/* Other values for every next run, so that all of them meet the others. */
class rotation {
public:
    [[nodiscard]] std::string size()
    {
        return sizes[count_++ % std::size(sizes)];
    }
    [[nodiscard]] std::string tls() { return (count_++ & 1) ? "tcp" : "sm"; }
    [[nodiscard]] std::string pair()
    {
        return memory_pairs[count_++ % std::size(memory_pairs)];
    }

private:
    unsigned count_ = 0;
};

/*
 * What stock UCP crashes on, since it touches device memory with the CPU (or
 * worse), whatever a copy transport does. The README names them. When one of
 * them succeeds, take it from here and from there. Measured with 1.13 and 1.18.
 */
struct known_crash {
    const char *test;
    const char *memory;
    const char *proto; /* of releases that have both generations */
    const char *tls;
    const char *where; /* in UCP 1.13 */
    arguments options = {};
    const char *size  = "8";
};

const arguments lists    = {"-D", "iov"};
const arguments to_lists = {"-D", "contig,iov"};

/* Atomics on device memory: the target's CPU does them. */
const known_crash crashes_of_all_releases[] = {
    {"ucp_add", "host,gaudi", "n", "sm", "ucp_atomic_req_handler"},
    {"ucp_fadd", "host,gaudi", "y", "sm", "ucp_atomic_req_handler"},
    {"ucp_swap", "gaudi", "n", "tcp", "ucp_atomic_req_handler"},
    {"ucp_cswap", "host,gaudi", "y", "tcp", "ucp_atomic_req_handler"},
};

/* In releases with the old protocols, some of them with the new ones, too.
 * Later releases do all of this. */
const known_crash crashes_of_old_releases[] = {
    /* RMA of the default protocols to another process: everything counts as
     * host memory. */
    {"ucp_put_bw", "gaudi", "n", "sm", "ucp_rma_sw_put_pack_cb"},
    {"ucp_put_bw", "gaudi,host", "n", "sm", "uct_sm_ep_put_short"},
    {"ucp_put_bw", "host,gaudi", "n", "sm", "ucp_put_handler"},
    {"ucp_put_lat", "gaudi", "n", "tcp", "ucp_rma_sw_put_pack_cb"},
    {"ucp_put_lat", "host,gaudi", "n", "tcp", "ucp_put_handler"},
    {"ucp_get", "gaudi", "n", "sm", "ucp_rma_sw_pack_get_reply"},
    {"ucp_get", "gaudi,host", "n", "sm", "uct_sm_ep_get_bcopy"},
    {"ucp_get", "gaudi,host", "n", "tcp", "ucp_get_rep_handler"},
    {"ucp_get", "host,gaudi", "n", "tcp", "ucp_rma_sw_pack_get_reply"},
    /* Atomics with operand or result in device memory. */
    {"ucp_fadd", "gaudi,host", "n", "tcp", "ucp_atomic_rep_handler"},
    {"ucp_swap", "gaudi,host", "y", "sm", "uct_sm_ep_atomic64_fetch"},
    {"ucp_cswap", "gaudi,host", "n", "tcp", "ucp_amo_sw_pack"},
    /* Scatter-gather lists whose memory type the program does not name: UCP
     * looks for it at the address of the list. */
    {"tag_bw", "gaudi", "n", "sm", "ucp_dt_iov_gather", lists, "1000,3000"},
    {"tag_lat", "gaudi", "y", "sm", "ucp_dt_iov_scatter", to_lists,
     "1000,3000"},
    {"stream_lat", "host,gaudi", "y", "tcp", "ucp_dt_iov_scatter", to_lists,
     "1000,3000"},
    /* Rendezvous into device memory with a memory handle: the handle shares a
     * union with the bytes that remain. */
    {"tag_lat", "host,gaudi", "n", "tcp", "ucp_rndv_receive", {"-z"}, "65536"},
};

/* An assertion of the release candidate that Debian has, when this is the first
 * operation on an endpoint: it goes by a rendezvous and is to be flushed. */
const known_crash crashes_of_1_23[] = {
    {"ucp_get", "gaudi,host", "y", "sm", "ucp_ep_flush_state"},
};

bool crashes(const std::string &test, const std::string &memory,
             const std::string &tls)
{
    return !ucx_is_before(1, 23) &&
           std::any_of(std::begin(crashes_of_1_23), std::end(crashes_of_1_23),
                       [&](const known_crash &known) {
                           return (known.test == test) &&
                                  (known.memory == memory) &&
                                  (known.tls == tls);
                       });
}

class perftest_crash : public perftest {
protected:
    static perftest_case case_of(const known_crash &what)
    {
        return {what.test,
                what.memory,
                what.size,
                what.tls,
                has_old_protocols ? what.proto : default_protocols,
                what.options,
                {{"UCX_HANDLE_ERRORS", "none"}}};
    }

    void expect_crash(const known_crash &what) const
    {
        const perftest_case run_of = case_of(what);
        SCOPED_TRACE(text_of(run_of) + ": " + what.where);
        const running pair = start_pair(run_of);
        /* The side that does not crash ends before, or waits for ever and dies
         * with `pair`. */
        unsigned ended   = 0;
        bool crashed     = false;
        process *sides[] = {pair.client.get(), pair.server.get()};
        EXPECT_TRUE(eventually([&] {
            for (process *&side : sides) {
                if ((side != nullptr) && side->has_ended()) {
                    const int signal = side->wait().signal;
                    crashed |= (signal == SIGSEGV) || (signal == SIGABRT);
                    side = nullptr;
                    ++ended;
                }
            }
            return crashed || (ended == 2);
        }));
        EXPECT_TRUE(crashed);
    }
};

class perftest_of : public perftest,
                    public ::testing::WithParamInterface<generation> {};

using perftest_messages = perftest_of;
using perftest_rma      = perftest_of;

} // namespace

TEST_P(perftest_messages, run_between_all_kinds_of_memory)
{
    const auto &[test, proto] = GetParam();
    rotation next;
    for (const char *memory : memory_pairs) {
        for (const char *tls : {"sm", "tcp"}) {
            expect_success({test, memory, next.size(), tls, proto});
        }
    }
}

TEST_P(perftest_messages, run_in_every_mode)
{
    const auto &[test, proto]    = GetParam();
    std::vector<arguments> modes = {{"-E", "sleep"},
                                    {"-T", "2", "-M", "multi"}};
    if (std::string(test).ends_with("_bw")) {
        modes.insert(modes.end(), {{"-I"},
                                   {"-T", "4", "-M", "multi"},
                                   {"-T", "2", "-M", "serialized"}});
        if (can_move_single_workers) {
            modes.push_back({"-T", "2", "-M", "single"});
        }
    }
    rotation next_size;
    rotation next_tls;
    rotation next_pair;
    for (const arguments &mode : modes) {
        expect_success({test, next_pair.pair(), next_size.size(),
                        next_tls.tls(), proto, mode});
    }
    /* Stock sm has no error handling. */
    expect_success({test, "gaudi", "65536", "tcp", proto, {"-e"}});
}

TEST_P(perftest_messages, run_to_the_own_worker)
{
    const auto &[test, proto] = GetParam();
    rotation next;
    for (const char *memory : memory_pairs) {
        expect_success_alone({test, memory, next.size(), "sm", proto});
    }
}

INSTANTIATE_TEST_SUITE_P(of, perftest_messages,
                         ::testing::Combine(::testing::ValuesIn(message_tests),
                                            ::testing::ValuesIn(protocols())),
                         name_of_generation);

TEST_P(perftest_rma, runs_to_another_process)
{
    const auto &[test, proto] = GetParam();
    const std::string how     = proto;
    rotation next;
    for (const char *memory : memory_pairs) {
        for (const char *tls : {"sm", "tcp"}) {
            /* See crashes_of_old_releases. */
            if (((how == "y") || (memory == std::string("host"))) &&
                !crashes(test, memory, tls)) {
                expect_success({test, memory, next.size(), tls, how});
            }
        }
    }
    const char *memory = (how == "y") ? "gaudi" : "host";
    expect_success({test, memory, "8192", "tcp", how, {"-e"}});
    /* Over tcp, UCX 1.13.1 itself hangs in one of 15 runs of ucp_get with two
     * threads on two cores, without this module, too. */
    for (const char *threads : {"multi", "single"}) {
        if (can_move_single_workers || (threads != std::string("single"))) {
            expect_success(
                {test, memory, "8192", "sm", how, {"-T", "2", "-M", threads}});
        }
    }
}

TEST_P(perftest_rma, runs_to_the_own_worker)
{
    const auto &[test, proto] = GetParam();
    rotation next;
    for (const char *memory : memory_pairs) {
        for (const char *tls : {"sm", "tcp", "self,sm"}) {
            expect_success_alone({test, memory, next.size(), tls, proto});
        }
    }
}

INSTANTIATE_TEST_SUITE_P(of, perftest_rma,
                         ::testing::Combine(::testing::ValuesIn(rma_tests),
                                            ::testing::ValuesIn(protocols())),
                         name_of_generation);

TEST_F(perftest, atomics_run_on_host_memory)
{
    for (const char *tls : {"sm", "tcp"}) {
        for (const char *test : atomic_tests) {
            expect_success({test, "host", "8", tls, default_protocols});
        }
    }
}

TEST_F(perftest, messages_run_with_other_options)
{
    for (const char *proto : protocols()) {
        for (const arguments &options : std::vector<arguments>{
                 {"-C"}, {"-U"}, {"-O", "4"}, {"-U", "-O", "4"}}) {
            expect_success({"tag_bw", "gaudi", "65536", "sm", proto, options});
        }
        expect_success(
            {"ucp_am_bw", "gaudi", "4096", "tcp", proto, {"-H", "64"}});
        expect_success(
            {"stream_bw", "gaudi", "65536", "tcp", proto, {"-r", "recv_data"}});
        expect_success({"tag_lat", "gaudi", "65536", "sm", proto, {"-z"}});
        expect_success({"tag_bw", "gaudi", "67108864", "sm", proto});
        perftest_case without_cache{"tag_bw", "gaudi", "65536", "sm", proto};
        without_cache.more = {{"UCX_MEMTYPE_CACHE", "n"}};
        expect_success(without_cache);
    }
}

TEST_F(perftest, new_protocols_send_lists_of_device_memory)
{
    for (const char *test : {"tag_bw", "ucp_am_bw"}) {
        for (const char *tls : {"sm", "tcp"}) {
            expect_success(
                {test, "gaudi", "1000,3000", tls, "y", {"-D", "iov,contig"}});
        }
    }
}

TEST_F(perftest_crash, happens_only_where_stock_ucp_has_it)
{
    for (const known_crash &what : crashes_of_all_releases) {
        expect_crash(what);
    }
    for (const known_crash &what : crashes_of_old_releases) {
        if (has_old_protocols || crashes(what.test, what.memory, what.tls)) {
            expect_crash(what);
        } else {
            expect_success(case_of(what));
        }
    }
}

TEST_F(perftest, runs_in_one_process_with_every_card_open)
{
    for (const char *proto : protocols()) {
        perftest_case what{"tag_lat", "gaudi", "8", "sm", proto};
        what.more = {{"UCX_GAUDI_DEVICES", "all"}};
        expect_success_alone(what);
    }
}

TEST_F(perftest, lists_the_memory_type)
{
    const arguments help = {"ucx_perftest", "-h"};
    EXPECT_TRUE(has_lines(1, "gaudi - ", emulated(help)));
    EXPECT_TRUE(
        has_lines(has_gaudi_type ? 1 : 0, "gaudi - ", run(help, with())));
}

TEST_F(perftest, measures_the_transport_itself_in_one_process)
{
    for (const std::string test : {"put_lat", "put_bw", "get"}) {
        for (const std::string layout : {"short", "bcopy", "zcopy"}) {
            if ((test == "get") && (layout == "short")) {
                continue; /* stock UCT tests have none */
            }
            for (const std::string size : {"1", "4096", "65536"}) {
                SCOPED_TRACE(test + " " + layout + " " + size);
                EXPECT_TRUE(is_quiet_success(
                    emulated(words("ucx_perftest -l -x gaudi_cpy -d gaudi0 -m "
                                   "gaudi -n 20 -w 1 -t " +
                                   test + " -D " + layout + " -s " + size)),
                    {"Final:"}));
            }
        }
    }
}

} // namespace gaudi::test
