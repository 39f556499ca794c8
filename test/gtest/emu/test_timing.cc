/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_TIMING: jobs take as long as in the box that is modelled. Times
 * are compared in one direction only: nothing is faster than the model. */
#include "gtest/emu/fixture.h"

#include "common/ability.h"
#include "common/namespaces.h"
#include "hlthunk_emulator/box_traffic.h"

#include <chrono>
#include <csignal>
#include <utility>

#include <unistd.h>

using namespace gaudi::test;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

child_options with_timing(const std::string &value)
{
    return {{{"HLTHUNK_EMU_TIMING", value}}, -1};
}

/* --- settings ------------------------------------------------------------- */

GAUDI_CHILD(has_a_card)
{
    return hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE) > 0 ? 0 : 77;
}

TEST(emu_timing, is_off_or_a_box_or_a_list)
{
    for (const char *good : {"off", "hls2", "hls3",
                             "to_card=15e-1,doorbell=0,cards_per_uplink=4"}) {
        EXPECT_TRUE(child_passes("has_a_card", with_timing(good))) << good;
    }
}

TEST(emu_timing, says_what_is_wrong_with_a_list)
{
    const std::pair<const char *, const char *> wrong[] = {
        {"hls9", "figure 'hls9'"},
        {"hbm=1,", "figure ''"},
        {"hbm=1GB", "'hbm' is not a number of GB/s"},
        {"doorbell=1,uplink=nan", "'uplink' is not a number of GB/s"},
        {"wakeup=-1", "'wakeup' is not a number of microseconds"},
        {"cards_per_uplink=1.5", "'cards_per_uplink' is not a number of cards"},
    };
    for (const auto &[value, why] : wrong) {
        const child_result ended = run_child("has_a_card", with_timing(value));
        EXPECT_EQ(ended.exit_code, 77) << value;
        EXPECT_THAT(ended.error, ::testing::HasSubstr("HLTHUNK_EMU_TIMING='" +
                                                      std::string(value)));
        EXPECT_THAT(ended.error, ::testing::HasSubstr(why));
    }
}

/* --- the model of a box --------------------------------------------------- */

/* Two threads that open the first card each make the model, of which one stays:
 * what is under way by then stays, too. What a killed process was changing does
 * not. */
GAUDI_CHILD(keeps_what_is_under_way)
{
    namespace emu = gaudi::emu;
    emu::flow sample{};
    sample.job  = 7;
    sample.left = 1e15;
    sample.needs.add(0, emu::shared_part::hbm);
    emu::box_traffic first;
    first.add(sample);
    const emu::box_traffic second;
    GAUDI_CHILD_REQUIRE(first.last_byte(0, 7) != 0);
    emu::box::instance().state().is_changing = true;
    GAUDI_CHILD_REQUIRE(first.last_byte(0, 7) == 0);
    return 0;
}

TEST(emu_timing, of_a_box_outlives_threads_that_begin_it)
{
    EXPECT_TRUE(child_passes("keeps_what_is_under_way", with_timing("hls2")));
}

/* --- jobs ----------------------------------------------------------------- */

/* Milliseconds that a job of this size takes at 1 MB/s. */
constexpr uint32_t job_bytes = 65536;
constexpr auto job_time      = 65536us;
constexpr char slow_links[]  = "to_card=0.001,from_card=0.001";

GAUDI_CHILD(uploads_slowly)
{
    used_card card;
    const auto begin      = clock_type::now();
    const uint64_t first  = card.start_upload(job_bytes);
    const uint64_t second = card.start_upload(job_bytes);
    outcome of_first      = card.wait(first, 0);
    GAUDI_CHILD_REQUIRE((of_first == busy) ||
                        (clock_type::now() - begin >= job_time));
    /* One queue: in order, one behind the other. */
    for (outcome of_second = busy; of_second == busy;) {
        of_second = card.wait(second, 0);
        of_first  = card.wait(first, 0);
        GAUDI_CHILD_REQUIRE((of_second == busy) || (of_first == completed));
    }
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= 2 * job_time);
    return 0;
}

TEST(emu_timing, jobs_take_as_long_as_in_the_model_and_in_order)
{
    EXPECT_TRUE(child_passes("uploads_slowly", with_timing(slow_links)));
}

/* --- processes ------------------------------------------------------------ */

/* For some seconds, alone. */
GAUDI_CHILD(has_much_on_its_way)
{
    used_card card(1);
    for (int i = 0; i < 60; ++i) {
        card.start_upload(2 * job_bytes);
    }
    tell_parent("started");
    wait_for_parent();
    return 0;
}

GAUDI_CHILD(uploads_beside_another)
{
    used_card card;
    const auto begin = clock_type::now();
    GAUDI_CHILD_REQUIRE(card.upload(job_bytes) == completed);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= 1.9 * job_time);
    return 0;
}

TEST(emu_timing, processes_share_the_link_of_a_switch)
{
    const auto timing = with_timing("uplink=0.001,cards_per_uplink=2");
    child_process other("has_much_on_its_way", timing);
    ASSERT_EQ(other.read_line(), "started");
    EXPECT_TRUE(child_passes("uploads_beside_another", timing));
    other.kill(SIGKILL);
    EXPECT_EQ(other.wait().signal, SIGKILL);
}

/* By which it is known that somebody has had a turn. */
constexpr gaudi::emu::model_time mark = 4711;

GAUDI_CHILD(has_a_turn_in_a_pod)
{
    GAUDI_CHILD_REQUIRE(enter_pod() && (getpid() == 1));
    tell_parent("comes");
    const gaudi::emu::box::turn mine(gaudi::emu::box::instance());
    tell_parent((mine->looked_for_dead == mark) ? "is next" : "is first");
    wait_for_parent();
    mine->looked_for_dead = mark;
    return 0;
}

/* Who has one and who waits have the same number, each in its namespace. */
TEST(emu_timing, turns_of_pods_follow_each_other)
{
    GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces));
    const child_options pods = as_pods(with_timing("hls2"));
    child_process first("has_a_turn_in_a_pod", pods);
    ASSERT_EQ(first.read_line(), "comes");
    ASSERT_EQ(first.read_line(), "is first");
    child_process next("has_a_turn_in_a_pod", pods);
    ASSERT_EQ(next.read_line(), "comes");
    {
        child_process killed("has_a_turn_in_a_pod", pods);
        ASSERT_EQ(killed.read_line(), "comes");
        killed.kill(SIGKILL);
        EXPECT_EQ(killed.wait().signal, SIGKILL);
    }
    first.write_line("leave");
    EXPECT_EQ(first.wait().exit_code, 0);
    EXPECT_EQ(next.read_line(), "is next");
}

} // namespace
