/* SPDX-License-Identifier: BSD-3-Clause */
/* What users are told who want Gaudi memory where no card can be had: one line,
 * with the reason. */
#include "common/needs.h"
#include "gtest/tools/fixture.h"

#include <cerrno>
#include <regex>

namespace gaudi::test {

namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;

constexpr char late_ucx[] = GAUDI_TOOLS_DIR "/late_ucx";
const std::string preface =
    "WARN +gaudi: there is no Gaudi memory for this process: ";

const arguments perftest_of_gaudi =
    words("ucx_perftest -t ucp_put_lat -m gaudi -l -n 1");

class no_card : public tools {
protected:
    void SetUp() override { GAUDI_NEEDS(no_card); }

    /** Run while another process holds the cards of the box. */
    [[nodiscard]] process_result
    run_beside_a_holder(const arguments &command,
                        environment variables = {}) const
    {
        variables.try_emplace("UCX_GAUDI_DEVICES", "auto");
        arguments all = {late_ucx, "hold", "/usr/bin/env"};
        for (const auto &[name, value] : variables) {
            all.push_back(name);
            all.back() += "=" + value;
        }
        return launched(joined(all, command), {"--emulate=2"},
                        {{"UCX_GAUDI_DEVICES", "all"}});
    }

    /** Lines of the log, without what stock programs say of their own ends. */
    static std::vector<std::string> complaints(const process_result &result)
    {
        static const std::regex stock(
            "Failed to run test|failed to allocate|rdma|"
            "transport 'gaudi_cpy' is not available");
        std::vector<std::string> found;
        for (const std::string &line : lines_with(result.output, " UCX  ")) {
            if (!std::regex_search(line, stock)) {
                found.push_back(line);
            }
        }
        return found;
    }

    /** Run on what a driver library shows, and with these variables. */
    [[nodiscard]] process_result
    run_with_driver(const std::string &driver, environment variables = {},
                    const arguments &command = {late_ucx, "map"}) const
    {
        variables["UCX_GAUDI_DRIVER"] = driver;
        return launched(command, {}, variables);
    }

    static void expect_reason(const process_result &result,
                              const std::string &pattern)
    {
        EXPECT_THAT(complaints(result), ElementsAre(ContainsRegex(pattern)))
            << result.output;
    }
};

constexpr char fake_driver[] = GAUDI_TOOLS_DIR "/libfake_driver.so";
const std::string all_taken  = preface +
                              "2 of 2 cards are in use by other processes "
                              "\\(`ucx-gaudi info` shows them\\)$";

} // namespace

TEST_F(no_card, perftest_is_told_that_others_have_the_cards)
{
    expect_reason(run_beside_a_holder(perftest_of_gaudi), all_taken);
}

TEST_F(no_card, a_program_that_maps_memory_is_told_once)
{
    for (const char *tls : {"all", "gaudi_copy,sm"}) {
        SCOPED_TRACE(tls);
        const process_result result =
            run_beside_a_holder({late_ucx, "map"}, {{"UCX_TLS", tls}});
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_TRUE(has_lines(2, "map: -4", result));
        expect_reason(result, all_taken);
    }
}

TEST_F(no_card, counts_those_that_may_be_seen)
{
    expect_reason(
        run_beside_a_holder(perftest_of_gaudi, {{"HLS_MODULE_ID", "1"}}),
        preface + "1 of 1 cards are in use by other processes");
}

TEST_F(no_card, is_no_news_to_who_does_not_ask)
{
    const arguments command = words("ucx_info -p -w -u t");
    EXPECT_TRUE(is_quiet_success(run_beside_a_holder(command)));
    EXPECT_TRUE(is_quiet_success(
        emulated(command, {{"HABANA_VISIBLE_DEVICES", "none"}})));
}

TEST_F(no_card, a_variable_that_hides_all_is_named)
{
    for (const arguments &command : {perftest_of_gaudi, {late_ucx, "map"}}) {
        expect_reason(emulated(command, {{"HABANA_VISIBLE_DEVICES", "none"}}),
                      preface + "HABANA_VISIBLE_DEVICES.* 8 cards");
    }
}

TEST_F(no_card, a_machine_without_one_is_told_of_the_emulator)
{
    expect_reason(launched(perftest_of_gaudi, {}),
                  preface + ".*UCX_GAUDI_DRIVER=emulator");
}

TEST_F(no_card, of_a_driver_library_has_its_reason)
{
    const struct {
        const char *library;
        environment variables;
        std::string pattern;
    } cases[] = {
        {fake_driver, {{"FAKE_CARDS", "0"}}, preface + ".*" + fake_driver},
        {GAUDI_TOOLS_DIR "/libbad_driver.so",
         {{"BAD_DRIVER", "apart"}, {"HLTHUNK_EMU_DEVICES", "1"}},
         preface + ".*addresses of host memory"},
        {fake_driver,
         {{"FAKE_TAKEN", "1"}},
         preface + ".*in use by other processes"},
        {fake_driver,
         {{"FAKE_OPEN_ERROR", std::to_string(EACCES)}},
         "WARN +gaudi0 \\(00ff:19:00.0\\).*Permission denied$"}};
    for (const auto &[driver, variables, pattern] : cases) {
        expect_reason(run_with_driver(driver, variables, perftest_of_gaudi),
                      pattern);
    }
}

TEST_F(no_card, what_is_wrong_with_a_setting_is_told_once)
{
    for (const arguments &command : {perftest_of_gaudi, {late_ucx, "map"}}) {
        expect_reason(
            emulated(command, {{"GAUDI_MAPPING_TABLE", "[{\"index\": 0}]"}}),
            "ERROR GAUDI_MAPPING_TABLE: entry 1");
        expect_reason(emulated(command, {{"UCX_GAUDI_DEVICES", "9"}}),
                      "ERROR UCX_GAUDI_DEVICES=9");
        expect_reason(run_with_driver("/no/such.so", {}, command),
                      "ERROR .*UCX_GAUDI_DRIVER=/no/such.so");
    }
}

TEST_F(no_card, is_no_reason_where_there_is_one)
{
    const process_result result = emulated({late_ucx, "map"});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(2, "map: 0", result));
}

} // namespace gaudi::test
