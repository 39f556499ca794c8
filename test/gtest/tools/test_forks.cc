/* SPDX-License-Identifier: BSD-3-Clause */
/* A program may fork at any time, whatever its other threads do over UCX. */
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

#include <cstdlib>

namespace gaudi::test {

namespace {

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
class forks : public tools, public ::testing::WithParamInterface<const char *> {
protected:
    void expect_done(const std::string &program, const std::string &tls,
                     const std::string &says) const
    {
        EXPECT_TRUE(is_quiet_success(
            emulated(
                {GAUDI_TOOLS_DIR "/" + program, std::to_string(duration())},
                over(tls, GetParam()), std::chrono::seconds(duration() + 70)),
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
