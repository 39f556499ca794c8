/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/registration.h"

#include "common/ucx_logs.h"

#include <gmock/gmock.h>

#include <array>

namespace gaudi::base {

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using function = int (*)();

} // namespace

TEST(function_table, names_itself_and_the_slots_that_are_missing)
{
    test::collect_logs();
    const function there = [] { return 1; };
    EXPECT_FALSE(
        is_complete("own", "ops_t", std::array<function, 3>{nullptr, there}));
    EXPECT_THAT(test::take_logs(),
                ElementsAre(AllOf(HasSubstr("own"), HasSubstr("slot 0"),
                                  HasSubstr("ops_t")),
                            HasSubstr("slot 2")));
}

} // namespace gaudi::base
