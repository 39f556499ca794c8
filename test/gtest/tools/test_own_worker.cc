/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes within one process arrive as they were sent, over stock UCP: to the own
 * worker, to another one, and to one of another context. What workers bear. */
#include "common/scratch.h"
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

namespace gaudi::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/* See peer/ucp_own_worker.cc. */
struct own_worker_case {
    std::string to;
    std::string traffic;
    std::string tls;
    std::string proto;
};

void PrintTo(const own_worker_case &what, std::ostream *out)
{
    *out << what.to << " " << what.traffic << " " << what.tls << " "
         << what.proto;
}

std::string name_of(const ::testing::TestParamInfo<own_worker_case> &info)
{
    const own_worker_case &what = info.param;
    return what.to + "_" + what.traffic + "_" +
           (what.tls.empty() ? "any" : what.tls) + "_proto_" + what.proto;
}

std::vector<own_worker_case> make_cases()
{
    std::vector<own_worker_case> result;
    for (const char *proto : protocols()) {
        for (const char *tls : {"sm", "tcp", "self", "gaudi_ipc", ""}) {
            /* Each of these would move host memory of the own process, too. */
            result.push_back({"worker", "rma", tls, proto});
        }
        for (const char *traffic : {"tag", "pieces", "am", "stream"}) {
            result.push_back({"worker", traffic, "sm", proto});
        }
        for (const char *to : {"workers", "contexts"}) {
            for (const char *tls : {"sm", "tcp"}) {
                result.push_back({to, "rma", tls, proto});
            }
            for (const char *traffic : {"tag", "am", "stream"}) {
                result.push_back({to, traffic, "sm", proto});
            }
        }
    }
    return result;
}

/* Bytes are the same, with arguments of ucp_own_worker. */
class transfers_within : public tools {
protected:
    void expect_all_there(const arguments &how,
                          const environment &variables) const
    {
        EXPECT_TRUE(is_quiet_success(emulated(joined({program}, how), variables,
                                              std::chrono::seconds(90)),
                                     {"all there"}));
    }

    static constexpr char program[] = GAUDI_TOOLS_DIR "/ucp_own_worker";
};

class own_worker : public transfers_within,
                   public ::testing::WithParamInterface<own_worker_case> {};

} // namespace

TEST_P(own_worker, gets_bytes_unchanged_and_nothing_else)
{
    const own_worker_case &what = GetParam();
    expect_all_there(
        {what.to, what.traffic},
        over(what.tls.empty() ? "" : "gaudi_copy," + what.tls, what.proto));
}

class flushed_own_worker
    : public transfers_within,
      public ::testing::WithParamInterface<
          std::tuple<const char *, const char *, const char *>> {};

/* Also what waited for room when the flush began. With few chunks of staging
 * memory nearly all do. */
TEST_P(flushed_own_worker, has_all_bytes_and_copies_none_later)
{
    const auto &[proto, threshold, chunks]    = GetParam();
    environment variables                     = over("gaudi_copy,sm", proto);
    variables["UCX_ZCOPY_THRESH"]             = threshold;
    variables["UCX_GAUDI_COPY_STAGING_COUNT"] = chunks;
    expect_all_there({"worker", "flushed"}, variables);
}

INSTANTIATE_TEST_SUITE_P(of, flushed_own_worker,
                         ::testing::Combine(::testing::ValuesIn(protocols()),
                                            ::testing::Values("auto", "inf"),
                                            ::testing::Values("3", "16")),
                         [](const auto &info) {
                             return std::string("proto_") +
                                    std::get<0>(info.param) +
                                    "_zcopy_threshold_" +
                                    std::get<1>(info.param) + "_chunks_" +
                                    std::get<2>(info.param);
                         });

using three_words = std::tuple<const char *, const char *, const char *>;

/* Cards that come when UCP is open: it gets one, or the program does. */
class late_card : public transfers_within,
                  public ::testing::WithParamInterface<three_words> {};

TEST_P(late_card, is_served_by_a_worker_that_had_none)
{
    const auto &[card, traffic, proto] = GetParam();
    expect_all_there({"worker", traffic, card}, over("", proto));
}

std::string name_of_late(const ::testing::TestParamInfo<three_words> &info)
{
    const auto &[card, traffic, proto] = info.param;
    return std::string(card == std::string("late-card") ? "ucp"
                                                        : "the_program") +
           "_" + traffic + "_proto_" + proto;
}

INSTANTIATE_TEST_SUITE_P(of, late_card,
                         ::testing::Combine(::testing::Values("late-card",
                                                              "late-own-card"),
                                            ::testing::Values("tag", "rma"),
                                            ::testing::ValuesIn(protocols())),
                         name_of_late);

using own_endpoint = tools;

/* Both transports reach the own process and could put and get there. */
class own_process : public transfers_within,
                    public ::testing::WithParamInterface<const char *> {
protected:
    /* Of the endpoint whose title ends so. */
    static std::vector<std::string> lanes(const std::string &output,
                                          const std::string &title)
    {
        const size_t begin = output.find("# UCP endpoint " + title + "\n");
        EXPECT_NE(std::string::npos, begin) << output;
        std::vector<std::string> found;
        for (const std::string &line : lines_with(
                 output.substr(std::min(begin, output.size())), "lane[")) {
            /* They are numbered from 0 for each endpoint. */
            if (!found.empty() && (line.find("lane[0]") != std::string::npos)) {
                break;
            }
            found.push_back(line);
        }
        return found;
    }
};

TEST_P(own_process, is_served_by_gaudi_cpy_and_gets_messages_by_gaudi_ipc)
{
    const process_result result = emulated(
        {program, "worker", "rma"}, over("gaudi_copy,gaudi_ipc", GetParam()));
    EXPECT_TRUE(is_quiet_success(result));
    const std::vector<std::string> own = lanes(result.output, "");
    ASSERT_EQ(2u, own.size());
    EXPECT_THAT(own[0], AllOf(HasSubstr("gaudi_cpy/"), HasSubstr("rma_bw#0")));
    EXPECT_THAT(own[1] + " ",
                AllOf(HasSubstr("gaudi_ipc/"), HasSubstr(" am ")));

    /* UCP's private one, by which it packs and unpacks device memory. */
    const std::vector<std::string> of_type =
        lanes(result.output, has_gaudi_type ? "for HabanaLabs Gaudi memory"
                                            : "for Intel Gaudi device memory");
    ASSERT_FALSE(of_type.empty());
    EXPECT_THAT(of_type[0],
                AllOf(HasSubstr("gaudi_cpy/"), HasSubstr("rma_bw#0")));
}

INSTANTIATE_TEST_SUITE_P(with, own_process, ::testing::ValuesIn(protocols()),
                         name_of_protocols);

/* Whatever the environment says, and wherever a list comes from. */
TEST_F(own_endpoint, is_there_with_the_lists_of_programs)
{
    const arguments program = {GAUDI_TOOLS_DIR "/ucp_endpoints", "own"};
    const std::string list  = "gaudi_cpy,gaudi_ipc";
    const scratch_directory files;
    (void)files.file("ucx.conf", "UCX_TLS=" + list + "\n");
    const struct {
        arguments chosen;
        environment variables;
    } cases[] = {
        {{list}, {}},
        {{list}, {{"UCX_TLS", "sm"}}},
        {{"", "OWN"}, {{"OWN_UCX_TLS", list}}},
        /* UCX itself warns of this variable. */
        {{""},
         {{"UCX_CONFIG_DIR", files.path("")},
          {"UCX_WARN_UNUSED_ENV_VARS", "n"}}},
        {{""}, {{"UCX_TLS", "cma,gaudi"}}},
        {{""}, {{"UCX_TLS", "^tcp,shm,self"}}},
    };
    for (const auto &each : cases) {
        const process_result result =
            emulated(joined(program, each.chosen), each.variables);
        EXPECT_TRUE(is_quiet_success(result, {"gaudi_cpy/", "gaudi_ipc/",
                                              "\n8 bytes: the same",
                                              "1048576 bytes: the same"}));
    }
}

/* Between two cards of the process, through the host. */
class two_cards : public transfers_within,
                  public ::testing::WithParamInterface<generation> {};

TEST_P(two_cards, get_bytes_unchanged_from_each_other)
{
    const auto &[traffic, proto] = GetParam();
    expect_all_there(
        {"worker", traffic, "second-card"},
        over("gaudi_copy,sm", proto, {{"UCX_GAUDI_DEVICES", "all"}}));
}

INSTANTIATE_TEST_SUITE_P(of_a_process, two_cards,
                         ::testing::Combine(::testing::Values("rma", "tag"),
                                            ::testing::ValuesIn(protocols())),
                         name_of_generation);

INSTANTIATE_TEST_SUITE_P(of_transfers, own_worker,
                         ::testing::ValuesIn(make_cases()), name_of);

/* --- many endpoints, and workers that sleep --------------------------------*/

/* With UCX_TLS; empty: UCX's default. */
class workers : public tools,
                public ::testing::WithParamInterface<std::string> {
protected:
    void expect_well(const arguments &how)
    {
        environment variables;
        if (!GetParam().empty()) {
            variables["UCX_TLS"] = GetParam();
        }
        EXPECT_TRUE(is_quiet_success(
            emulated(joined({GAUDI_TOOLS_DIR "/ucp_endpoints"}, how), variables,
                     std::chrono::seconds(90)),
            {"all well"}));
    }
};

TEST_P(workers, have_as_many_endpoints_as_a_program_likes)
{
    /* With all transports newer releases of UCP connect them over TCP, too,
     * with two descriptors each. */
    const bool has_sockets = GetParam().empty() && !ucx_is_before(1, 16);
    expect_well({"open", has_sockets ? "4000" : "10000"});
}

TEST_P(workers, forget_endpoints_that_were_closed_without_progress)
{
    expect_well({"reopen", "3000"});
}

TEST_P(workers, can_be_armed_and_signalled_without_progress)
{
    expect_well({"signal"});
}

INSTANTIATE_TEST_SUITE_P(of_stock_ucp, workers,
                         ::testing::Values("", "gaudi_copy,gaudi_ipc"),
                         [](const auto &test) {
                             return test.param.empty() ? "with_all_transports"
                                                       : "with_gaudi_alone";
                         });

} // namespace gaudi::test
