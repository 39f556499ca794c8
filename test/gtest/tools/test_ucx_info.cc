/* SPDX-License-Identifier: BSD-3-Clause */
/* What stock ucx_info tells about the transports. */
#include "common/needs.h"
#include "gtest/tools/fixture.h"

#include <sstream>

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ucx_info = tools;

/* The cards that it lists, in its order. */
std::vector<std::string> devices(const std::string &output)
{
    std::vector<std::string> result;
    for (const std::string &line : lines_with(output, " Device: gaudi")) {
        const std::string name = line.substr(line.rfind(' ') + 1);
        if (name != "gaudi") { /* that of gaudi_ipc, for the machine */
            result.push_back(name);
        }
    }
    return result;
}

const arguments opens_worker = {"ucx_info", "-p", "-w", "-u", "t"};

} // namespace

TEST_F(ucx_info, lists_the_component_the_transport_and_one_card)
{
    const process_result result = emulated({"ucx_info", "-d"});
    EXPECT_TRUE(is_quiet_success(result, {"# Memory domain: gaudi_copy\n"
                                          "#     Component: gaudi_copy\n",
                                          "#      Transport: gaudi_cpy\n"
                                          "#         Device: gaudi0\n"
                                          "#           Type: accelerator\n"
                                          "#  System device: gaudi0",
                                          "#      Transport: gaudi_ipc\n"
                                          "#         Device: gaudi\n"
                                          "#           Type: intra-node\n"}));
    EXPECT_EQ(std::vector<std::string>{"gaudi0"}, devices(result.output));
}

TEST_F(ucx_info, says_nothing_of_gaudi_on_a_machine_without_a_card)
{
    const process_result result = launched({"ucx_info", "-d"}, {});
    EXPECT_TRUE(is_quiet_success(result, {"Memory domain: "}));
    EXPECT_EQ(std::vector<std::string>{}, devices(result.output));
    EXPECT_TRUE(exited_with(0, result, {},
                            {"Transport: gaudi", "Memory domain: gaudi"}));
}

TEST_F(ucx_info, shows_every_variable_with_its_help)
{
    const process_result values = emulated({"ucx_info", "-c"});
    const process_result helps  = emulated({"ucx_info", "-c", "-f"});
    EXPECT_TRUE(exited_with(0, values));
    EXPECT_TRUE(exited_with(0, helps));
    EXPECT_TRUE(has_lines(0, "UCX  WARN", values));
    for (const std::string name :
         {"DRIVER=emulator", "DEVICES=auto", "MEMORY_TYPE=auto",
          "COPY_STAGING_CHUNK=", "COPY_STAGING_COUNT=", "IPC_ROUTES=",
          "COPY_BW="}) {
        EXPECT_THAT(values.output, HasSubstr("UCX_GAUDI_" + name));
        /* "# help\n#\n# syntax: ...\n...\nNAME=" */
        const size_t at = helps.output.find("\nUCX_GAUDI_" +
                                            name.substr(0, name.find('=') + 1));
        ASSERT_NE(std::string::npos, at) << name;
        const size_t start = helps.output.rfind("\n\n", at) + 2;
        EXPECT_THAT(helps.output.substr(start, at - start),
                    ::testing::ContainsRegex("^#.*\n(.*\n)*# syntax: "))
            << name;
    }
}

TEST_F(ucx_info, takes_values_from_the_environment)
{
    GAUDI_NEEDS(second_card);
    const environment variables = {{"UCX_GAUDI_COPY_STAGING_CHUNK", "8k"},
                                   {"UCX_GAUDI_COPY_STAGING_COUNT", "4"},
                                   {"UCX_GAUDI_COPY_BW", "12GBs"},
                                   {"UCX_GAUDI_DEVICES", "3"}};
    EXPECT_TRUE(exited_with(0, emulated({"ucx_info", "-c"}, variables),
                            {"UCX_GAUDI_COPY_STAGING_CHUNK=8K\n",
                             "UCX_GAUDI_COPY_STAGING_COUNT=4\n",
                             "UCX_GAUDI_DEVICES=3\n"}));

    /* Opens a context and a worker: there UCX looks for unused variables. */
    EXPECT_TRUE(is_quiet_success(emulated(opens_worker, variables),
                                 {"gaudi_cpy/gaudi3"}));
}

TEST_F(ucx_info, warns_of_a_variable_that_does_not_exist)
{
    /* So that the silence above means something. */
    const process_result result =
        emulated(opens_worker, {{"UCX_GAUDI_COPY_NO_SUCH_THING", "1"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "unused", result));
}

TEST_F(ucx_info, every_memory_type_that_can_be_taken_leaves_ucp_as_it_was)
{
    /* Defaults of UCP's configuration name memory types. Which types there are
     * depends on UCX. */
    const std::string before = "is not one of ";
    const std::string refused =
        emulated({"ucx_info", "-v"}, {{"UCX_GAUDI_MEMORY_TYPE", "gold"}})
            .output;
    ASSERT_THAT(refused, HasSubstr(before));
    std::istringstream names(
        refused.substr(refused.find(before) + before.size()));
    std::string line;
    std::getline(names, line);
    std::istringstream types(line);
    for (std::string type; types >> type;) {
        if (type.back() == ',') {
            type.pop_back();
        }
        SCOPED_TRACE(type);
        EXPECT_TRUE(is_quiet_success(
            emulated(opens_worker, {{"UCX_GAUDI_MEMORY_TYPE", type}}),
            {"gaudi_cpy/gaudi0"}));
    }
}

TEST_F(ucx_info, old_protocols_get_no_gaudi_memory_where_they_cannot_use_it)
{
    /* They cannot where UCX has made the new ones its default. */
    const bool cannot =
        !lines_with(emulated({"ucx_info", "-c"}).output, "UCX_PROTO_ENABLE=y")
             .empty();
    const process_result result =
        emulated({"ucx_info", "-d"}, {{"UCX_PROTO_ENABLE", "n"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(result.output, HasSubstr("Transport: tcp"));
    EXPECT_TRUE(has_lines(cannot ? 1 : 0, "UCX_PROTO_ENABLE=n", result));
    EXPECT_EQ(!cannot, devices(result.output).size() > 0);
}

} // namespace gaudi::test
