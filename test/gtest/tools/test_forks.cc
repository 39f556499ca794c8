/* A program may fork at any time, whatever its other threads do over UCX. */
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

#include <cstdlib>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* How long, seconds; GAUDI_TEST_FORK_SECONDS says otherwise. */
unsigned duration()
{
    constexpr unsigned by_default = 3;
    const char *wished            = std::getenv("GAUDI_TEST_FORK_SECONDS");
    return (wished == nullptr)
               ? by_default
               : static_cast<unsigned>(std::strtoul(wished, nullptr, 10));
}

/* Protocol generation. */
class forks : public tools,
              public ::testing::WithParamInterface<const char *> {};

} // namespace

TEST_P(forks, are_not_held_up_beside_freed_exports_and_transfers)
{
    process_options options = with({{"UCX_PROTO_ENABLE", GetParam()},
                                    {"UCX_TLS", "gaudi_copy,gaudi_ipc"}});
    options.deadline        = std::chrono::seconds(duration() + 70);
    const process_result result =
        run(under_launcher(
                {GAUDI_TOOLS_DIR "/ucp_forks", std::to_string(duration())}),
            options);
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(result.output, HasSubstr("forks beside"));
}

TEST_P(forks, are_not_held_up_where_another_thread_opens_the_first_card)
{
    process_options options =
        with({{"UCX_PROTO_ENABLE", GetParam()}, {"UCX_TLS", "self,gaudi"}});
    options.deadline = std::chrono::seconds(duration() + 70);
    const process_result result =
        run(under_launcher(
                {GAUDI_TOOLS_DIR "/opening_cards", std::to_string(duration())}),
            options);
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(result.output, HasSubstr("forks at"));
}

INSTANTIATE_TEST_SUITE_P(with, forks, ::testing::ValuesIn(protocols()),
                         [](const auto &test) {
                             return std::string("proto_") + test.param;
                         });

} // namespace gaudi::test
