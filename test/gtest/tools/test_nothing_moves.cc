/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On a card that completes every job and copies nothing, every test of data has
 * to fail: whatever passes there does not look at what the card did.
 */
#include "gtest/tools/fixture.h"

#include "common/process_state.h"
#include "common/scratch.h"

#include <map>
#include <memory>

#include <cjson/cJSON.h>

namespace gaudi::test {

namespace {

using nothing_moves = tools;

constexpr char program[]   = GAUDI_BUILD_DIR "/bin/gaudi_gtest_uct";
constexpr char filter[]    = "put_and_get/every_operation.*:memory_pairs.*:"
                             "of/ipc_pairs.put_*-*moves_as_much_as_*";
constexpr char real_card[] = GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so";
constexpr char idle_card[] =
    GAUDI_BUILD_DIR "/lib/hlthunk-emu-no-copy/libhl-thunk.so";

/* Tests that move nothing to or from a card: the CPU, or the kernel, copies
 * between two places in host memory. */
bool may_pass(const std::string &name)
{
    return (name == "memory_pairs.host_to_host_is_a_plain_copy") ||
           (name.find("ipc_pairs.put_") != std::string::npos &&
            name.find("/host_to_host_") != std::string::npos);
}

/* Every test of GoogleTest's report, and whether it passed. */
std::map<std::string, bool> read_report(const std::string &text)
{
    const std::unique_ptr<cJSON, decltype(&cJSON_Delete)> report(
        cJSON_Parse(text.c_str()), cJSON_Delete);
    const auto word = [](const cJSON *test, const char *name) {
        return std::string(
            cJSON_GetStringValue(cJSON_GetObjectItem(test, name)));
    };
    std::map<std::string, bool> passed;
    const cJSON *suite = nullptr;
    const cJSON *test  = nullptr;
    cJSON_ArrayForEach(suite, cJSON_GetObjectItem(report.get(), "testsuites"))
    {
        cJSON_ArrayForEach(test, cJSON_GetObjectItem(suite, "testsuite"))
        {
            passed[word(test, "classname") + "." + word(test, "name")] =
                !cJSON_HasObjectItem(test, "failures");
        }
    }
    return passed;
}

} // namespace

TEST_F(nothing_moves, without_a_copy_routine_every_test_of_data_fails)
{
    scratch_directory files;
    std::map<std::string, bool> passed[2];
    for (const bool idle : {false, true}) {
        const std::string report = files.path(idle ? "idle" : "real");
        const process_result result =
            run({program, std::string("--gtest_filter=") + filter,
                 "--gtest_output=json:" + report},
                with({{"GAUDI_TEST_HLTHUNK", idle ? idle_card : real_card}},
                     std::chrono::seconds(50)));
        EXPECT_TRUE(exited_with(idle ? 1 : 0, result));
        passed[idle] = read_report(read_file(report));
    }

    EXPECT_GT(passed[true].size(), 30u) << "the tests are gone";
    EXPECT_EQ(passed[false].size(), passed[true].size());
    for (const auto &[name, well] : passed[false]) {
        EXPECT_TRUE(well) << name << " fails on the card that copies";
    }
    for (const auto &[name, well] : passed[true]) {
        EXPECT_EQ(may_pass(name), well) << name;
    }
}

} // namespace gaudi::test
