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
using ::testing::IsEmpty;

using function = int (*)();

int one()
{
    return 1;
}

} // namespace

TEST(function_table, is_complete_when_every_slot_is_set)
{
    test::collect_logs();
    EXPECT_TRUE(is_complete("own", "ops_t", std::array{&one, &one}));
    EXPECT_THAT(test::take_logs(), IsEmpty());
}

TEST(function_table, names_itself_and_the_slots_that_are_missing)
{
    test::collect_logs();
    EXPECT_FALSE(is_complete("own", "ops_t",
                             std::array<function, 4>{nullptr, one, one}));
    EXPECT_THAT(test::take_logs(),
                ElementsAre(AllOf(HasSubstr("own"), HasSubstr("slot 0"),
                                  HasSubstr("ops_t")),
                            HasSubstr("slot 3")));
}

} // namespace gaudi::base
