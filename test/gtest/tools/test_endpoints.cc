/* Workers with many endpoints, and workers that sleep, over stock UCP. */
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

namespace gaudi::test {

namespace {

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

} // namespace

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
