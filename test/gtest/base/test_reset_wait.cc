/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/reset_wait.h"

#include <gtest/gtest.h>

namespace gaudi::test {

namespace {

using base::reset_wait;
using std::chrono::milliseconds;

/* Time that passes by sleeping alone. */
class reset_waiting : public ::testing::Test {
protected:
    /* Try cards in vain for so long. @return Whether there was time for it. */
    bool wait(milliseconds length)
    {
        const auto end = now_ + length;
        while (now_ < end) {
            const auto pause = waiting_.next_pause(now_);
            if (pause == reset_wait::clock::duration::zero()) {
                return false;
            }
            now_ += pause;
        }
        return true;
    }

    reset_wait waiting_{1.0};
    reset_wait::clock::time_point now_;
};

} // namespace

TEST_F(reset_waiting, lasts_as_long_as_the_setting_says)
{
    EXPECT_TRUE(wait(milliseconds(1000)));
    EXPECT_FALSE(wait(milliseconds(1)));
}

TEST_F(reset_waiting, in_vain_is_shared_by_opens_that_follow)
{
    EXPECT_FALSE(wait(milliseconds(1500)));
    EXPECT_FALSE(wait(milliseconds(1))) << "the next memory domain";
    now_ += milliseconds(900);
    EXPECT_FALSE(wait(milliseconds(1)));
    now_ += milliseconds(200);
    EXPECT_TRUE(wait(milliseconds(1000))) << "another occasion";
}

TEST_F(reset_waiting, in_vain_is_not_repeated_for_the_same_card)
{
    EXPECT_FALSE(wait(milliseconds(1500)));
    waiting_.over(); /* by another card */
    EXPECT_FALSE(wait(milliseconds(1)));
}

} // namespace gaudi::test
