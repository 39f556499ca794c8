/* SPDX-License-Identifier: BSD-3-Clause */
/* A program on UCP outlives all that befalls those that it talks to, gets the
 * right bytes or an error, and keeps nothing; and it may fork. */
#include "common/needs.h"
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include "common/ability.h"
#include "common/scratch.h"

#include <cstdlib>
#include <random>

#include <sys/stat.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* GAUDI_TEST_FAULTS says otherwise, and GAUDI_TEST_SEED which. */
constexpr unsigned usual_count = 40;
constexpr unsigned at_once     = 10; /* with the same settings */

unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *wished = std::getenv(name);
    return (wished == nullptr) ? otherwise : std::strtoul(wished, nullptr, 10);
}

class faults : public two_peers, public no_shared_memory_left {
protected:
    /* @param cases  See peer/ucp_faults.cc; with two passes it also keeps
     *               nothing of them.
     * Cards: for the survivor, for another one, and some that processes which
     * are just dead may still hold. */
    void survive(const arguments &cases, const char *protocols,
                 const environment &more = {}, unsigned passes = 1,
                 const arguments &around = {})
    {
        environment all = {{"UCX_KEEPALIVE_INTERVAL", "500ms"},
                           {"UCX_HANDLE_ERRORS", "none"},
                           {"UCX_LOG_LEVEL", "fatal"}};
        all.insert(more.begin(), more.end());
        const string seed = std::to_string(seed_);
        string told       = "GAUDI_TEST_SEED=" + seed;
        for (const auto &[name, value] : more) {
            told += " " + name + "=" + value;
        }
        SCOPED_TRACE(told);
        const arguments command = joined(
            {GAUDI_TOOLS_DIR "/ucp_faults", std::to_string(passes), seed},
            cases);
        const process_result result =
            run(joined(around, under_launcher(command, {"--emulate=4"})),
                with(over("gaudi_copy,gaudi_ipc", protocols, all),
                     std::chrono::seconds(580)));
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_THAT(result.output, HasSubstr("all survived"));
        /* UCP's ends of a process, not ours. */
        EXPECT_LE(lines_with(result.output, "aborted").size(),
                  lines_with(result.output, "Fatal: ").size() +
                      lines_with(result.output, "Assertion `0' failed").size());
    }

    using string = std::string;

    const unsigned long seed_ =
        setting("GAUDI_TEST_SEED", std::random_device()());
};

class faults_by_way : public faults,
                      public ::testing::WithParamInterface<const char *> {
protected:
    static environment by_way()
    {
        return {{"UCX_GAUDI_IPC_ROUTES", GetParam()},
                {"HLTHUNK_EMU_PORTS", "y"},
                {"HLTHUNK_EMU_PORT_RETRIES", "10"}};
    }
};

class faults_by_protocols : public faults,
                            public ::testing::WithParamInterface<const char *> {
};

/* UCP 1.16 to 1.18 get by messages where an endpoint has error handling, and
 * abort when such a message comes of a peer whose endpoint has failed. */
constexpr bool gets_by_messages = !ucx_is_before(1, 16) && ucx_is_before(1, 19);

arguments kills()
{
    arguments all = words("unmet,4096,heap,heap,here,kill "
                          "idle,8,heap,heap,here,kill "
                          "flood,4096,heap,gaudi,here,kill "
                          "tag,4096,gaudi,gaudi,here,kill "
                          "tag,4096,gaudi,gaudi,there,kill "
                          "tag,5000000,gaudi,gaudi,here,kill "
                          "tag,5000000,gaudi,gaudi,there,kill "
                          "put,5000000,gaudi,gaudi,here,kill "
                          "put,5000000,gaudi,gaudi,there,kill "
                          "get,5000000,gaudi,gaudi,here,kill ");
    if (!gets_by_messages) {
        all.emplace_back("get,5000000,gaudi,gaudi,there,kill");
    }
    return all;
}

} // namespace

/* Not with the new protocols: those of UCP 1.13 abort the process when a peer
 * dies with requests under way (ucp_ep_reqs_purge). */
TEST_P(faults_by_way, killed_peers_fail_their_endpoints)
{
    const bool is_quick = (GetParam() == std::string("host")); /* no drain */
    survive(kills(), default_protocols, by_way(), is_quick ? 2 : 1);
}

TEST_P(faults_by_way, peers_that_end_or_stop_hold_up_nobody)
{
    survive(words("tag,4096,gaudi,gaudi,here,exit "
                  "tag,1048576,gaudi,gaudi,there,exit "
                  "put,1048576,gaudi,gaudi,here,exit "
                  "get,1048576,gaudi,heap,there,exit "
                  "tag,1048576,gaudi,gaudi,here,stop "
                  "put,1048576,gaudi,gaudi,there,stop "
                  "get,1048576,gaudi,gaudi,here,stop"),
            default_protocols, by_way());
}

/* Requests end with an endpoint that is closed by force. */
TEST_P(faults_by_way, closed_endpoints_hold_up_nobody)
{
    arguments all;
    for (const char *how :
         {"here@flush", "here@force", "there@flush", "there@force"}) {
        for (const char *which :
             {"tag,1000,gaudi,gaudi,here,", "tag,1048576,gaudi,gaudi,here,",
              "tag,1048576,heap,gaudi,there,"}) {
            all.push_back(std::string(which) + how);
        }
    }
    for (const char *scheme : {"get_zcopy", "put_zcopy"}) {
        environment settings        = by_way();
        settings["UCX_RNDV_SCHEME"] = scheme;
        survive(all, default_protocols, settings);
    }
}

INSTANTIATE_TEST_SUITE_P(over, faults_by_way,
                         ::testing::Values("host", "ports"),
                         [](const auto &way) {
                             return std::string(way.param);
                         });

TEST_F(faults, killed_peers_in_pods_fail_their_endpoints)
{
    GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces, "proc"));
    const scratch_directory folder;
    ASSERT_EQ(0, mkdir(folder.path("cards").c_str(), 0700));
    survive(kills(), default_protocols,
            {{"UCX_GAUDI_IPC_DIR", folder.path("")},
             {"HLTHUNK_EMU_NODE", folder.path("cards")},
             {"GAUDI_TEST_AROUND_PEERS", in_a_pod}},
            1, words(in_a_pod));
}

/* Without a usable key UCP would have the CPU touch device memory. */
TEST_P(faults_by_protocols, keys_of_no_use_fail_their_operations_alone)
{
    survive(words("get,262144,heap,gaudi,here,freed "
                  "get,262144,gaudi,gaudi,here,freed "
                  "get,262144,heap,gaudi,there,keys:room "
                  "get,3000,gaudi,gaudi,here,damage"),
            GetParam());
}

/* Each of these once ended the side that was well, or left wrong bytes. */
TEST_P(faults_by_protocols, that_were_met_end_in_right_bytes_or_an_error)
{
    survive(words("get,5000000,gaudi,gaudi,there,submit#5=reset "
                  "get,3000,plain,gaudi,here,keys:map#1=reset "
                  "tag,1048576,gaudi,gaudi,there,job#1+=remove "
                  "get,3000,gaudi,gaudi,here,keys:deny=sendmsg "
                  "get,3000,gaudi,gaudi,there,keys:deny=recvmsg"),
            GetParam());
    survive(words("tag,8,heap,gaudi,there,job#1=abort "
                  "tag,8,heap,gaudi,there,job#1=reset "
                  "tag,20000,heap,gaudi,there,job#2+=reset"),
            GetParam(), {{"UCX_RNDV_THRESH", "inf"}});
}

INSTANTIATE_TEST_SUITE_P(with, faults_by_protocols,
                         ::testing::ValuesIn(protocols()), name_of_protocols);

/* UCP's new protocols tell the receiver of the bytes without a look at how the
 * puts went. Those of 1.13 then end the process. */
TEST_F(faults, of_the_sender_put_no_wrong_bytes_at_a_rendezvous)
{
    survive(words("tag,40000,gaudi,gaudi,there,keys:submit#1=EFAULT"),
            default_protocols, {{"UCX_RNDV_SCHEME", "put_zcopy"}});
}

namespace {

/* Of the table of peer/ucp_faults.cc. */
class random_faults : public faults {
protected:
    template <size_t count>
    const char *any_of(const char *const (&values)[count])
    {
        return values[random_() % count];
    }

    /* Calls that operations make of the driver, what jobs meet with, and what
     * befalls processes and endpoints. */
    std::string any_event()
    {
        static constexpr const char *errors[] = {
            "EFAULT", "EINVAL", "ETIMEDOUT", "EMFILE", "ENOMEM", "EIO",
            "EPERM",  "EBUSY",  "reset",     "kill",   "remove"};
        static constexpr const char *calls[]   = {"map", "submit", "submit",
                                                  "wait"};
        static constexpr const char *of_jobs[] = {
            "abort", "abort", "kill", "reset", "lose:50ms", "remove"};
        static constexpr const char *numbers[] = {"#1", "#2", "#5", "#1+",
                                                  "#3+"};
        static constexpr const char *others[]  = {"exit", "stop", "here@force",
                                                  "there@flush", "there@force"};
        const std::string moment               = any_of({"keys:", ""});
        switch (random_() % 4) {
        case 0:
            return any_of(others);
        case 1:
            return moment + "job" + any_of(numbers) + "=" + any_of(of_jobs);
        default:
            return moment + any_of(calls) + any_of(numbers) + "=" +
                   any_of(errors);
        }
    }

    /* @param messages  Other transports send what could not be fetched. */
    std::string any_case(bool messages)
    {
        static constexpr const char *kinds[] = {"gaudi,gaudi,", "gaudi,heap,",
                                                "heap,gaudi,", "plain,gaudi,"};
        return std::string(messages ? any_of({"tag,", "put,", "get,"})
                                    : any_of({"put,", "get,"})) +
               any_of({"8,", "3000,", "40000,", "1048576,", "5000000,"}) +
               any_of(kinds) + any_of({"here,", "there,"}) + any_event();
    }

    std::mt19937_64 random_;
};

} // namespace

TEST_F(random_faults, end_in_right_bytes_or_an_error)
{
    const unsigned long count = setting("GAUDI_TEST_FAULTS", usual_count);
    RecordProperty("seed", std::to_string(seed_));
    for (unsigned long i = 0; i < count; i += at_once) {
        random_.seed(seed_ + i);
        const bool by_ours = (random_() % 2) == 0;
        arguments all;
        while (all.size() < std::min<size_t>(at_once, count - i)) {
            all.push_back(any_case(by_ours));
        }
        SCOPED_TRACE(::testing::PrintToString(all));
        survive(
            all, default_protocols,
            {{"UCX_TLS",
              by_ours ? "gaudi_copy,gaudi_ipc" : "gaudi_copy,gaudi_ipc,sm"},
             {"UCX_RNDV_SCHEME", any_of({"auto", "get_zcopy", "put_zcopy"})}});
    }
}

namespace {

/* Exports that come and go. */
class exports : public two_peers,
                public no_shared_memory_left,
                public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] process_options settings(environment variables = {}) const
    {
        return with(over("gaudi_copy,gaudi_ipc", GetParam(), variables),
                    std::chrono::seconds(580));
    }
    void export_and_use(unsigned buffers)
    {
        expect_well(run_pair("ucp_peer", {"exports", std::to_string(buffers)},
                             settings()),
                    "all used", "all exported");
    }
};

using ipc_stress_exports = exports;

} // namespace

TEST_P(exports, keep_nothing)
{
    export_and_use(2000);
}

/* More than half of a card each: the key of one that is freed does not hold it.
 */
TEST_P(exports, give_most_of_a_card_again)
{
    GAUDI_NEEDS(pages_of_48_mb);
    const process_result result =
        run(under_launcher({GAUDI_TOOLS_DIR "/ucp_peer", "alone", "exports",
                            "4", std::to_string(288ul << 20)}),
            settings({{"HLTHUNK_EMU_HBM", "480M"},
                      {"HLTHUNK_EMU_DRAM_PAGE", "48M"}}));
    EXPECT_TRUE(is_quiet_success(result, {"all sent"}));
}

TEST_P(ipc_stress_exports, keep_nothing_of_a_hundred_thousand)
{
    export_and_use(100000);
}

INSTANTIATE_TEST_SUITE_P(with, exports, ::testing::ValuesIn(protocols()),
                         name_of_protocols);
INSTANTIATE_TEST_SUITE_P(with, ipc_stress_exports,
                         ::testing::ValuesIn(protocols()), name_of_protocols);

namespace {

/* A program may fork at any time, whatever its other threads do. */
class forks : public tools, public ::testing::WithParamInterface<const char *> {
protected:
    /* GAUDI_TEST_FORK_SECONDS says otherwise for how long. */
    void expect_done(const std::string &program, const std::string &tls,
                     const std::string &says) const
    {
        const auto seconds = setting("GAUDI_TEST_FORK_SECONDS", 3);
        EXPECT_TRUE(is_quiet_success(
            emulated({GAUDI_TOOLS_DIR "/" + program, std::to_string(seconds)},
                     over(tls, GetParam()), std::chrono::seconds(seconds + 70)),
            {says}));
    }
};

} // namespace

TEST_P(forks, are_not_held_up_beside_freed_exports_and_transfers)
{
    expect_done("ucp_forks", "gaudi_copy,gaudi_ipc", "forks beside");
}

TEST_P(forks, are_not_held_up_where_another_thread_opens_the_first_card)
{
    expect_done("opening_cards", "self,gaudi", "forks at");
}

INSTANTIATE_TEST_SUITE_P(with, forks, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

} // namespace gaudi::test
