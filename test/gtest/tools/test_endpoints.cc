/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of stock UCP in one process: their lanes. */
#include "common/scratch.h"
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

namespace gaudi::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char program[] = GAUDI_TOOLS_DIR "/ucp_peer";

/* Of the endpoint whose title ends so. */
std::vector<std::string> lanes(const std::string &output,
                               const std::string &title)
{
    const size_t begin = output.find("# UCP endpoint " + title + "\n");
    EXPECT_NE(std::string::npos, begin) << output;
    std::vector<std::string> found;
    for (const std::string &line :
         lines_with(output.substr(std::min(begin, output.size())), "lane[")) {
        /* They are numbered from 0 for each endpoint. */
        if (!found.empty() && (line.find("lane[0]") != std::string::npos)) {
            break;
        }
        found.push_back(line);
    }
    return found;
}

/* Protocol generation. */
class own_process : public tools,
                    public ::testing::WithParamInterface<const char *> {};
using endpoints = tools;

} // namespace

/* Both transports reach the own process and could put and get there. */
TEST_P(own_process, is_served_by_gaudi_cpy_and_gets_messages_by_gaudi_ipc)
{
    const process_result result =
        emulated({program, "alone", "rma", "info", "sizes=4097"},
                 over("gaudi_copy,gaudi_ipc", GetParam()));
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
TEST_F(endpoints, are_there_with_the_lists_of_programs)
{
    const std::string list = "gaudi_cpy,gaudi_ipc";
    const scratch_directory files;
    (void)files.file("ucx.conf", "UCX_TLS=" + list + "\n");
    const struct {
        arguments chosen;
        environment variables;
    } cases[] = {
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
        const process_result result = emulated(
            joined({program, "alone", "endpoints", "own"}, each.chosen),
            each.variables);
        EXPECT_TRUE(is_quiet_success(result, {"gaudi_cpy/", "gaudi_ipc/",
                                              "\n8 bytes: the same",
                                              "1048576 bytes: the same"}));
    }
}

} // namespace gaudi::test
