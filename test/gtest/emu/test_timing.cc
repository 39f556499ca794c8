/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_TIMING: jobs take as long as in the box that is modelled. Times
 * are compared in one direction only: nothing is faster than the model. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "hlthunk_emulator/box_traffic.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>

#include <unistd.h>

using namespace gaudi::test;
using namespace std::chrono_literals;

namespace {

namespace shim   = gaudi::shim;
namespace box    = gaudi::emu;
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

class emu_timing : public ::testing::Test {
protected:
    static void expect_refused(const std::string &value, const std::string &why)
    {
        const child_result ended = run_child("has_a_card", with_timing(value));
        EXPECT_EQ(ended.exit_code, 77) << value;
        EXPECT_THAT(ended.error,
                    ::testing::HasSubstr("hlthunk-emu: HLTHUNK_EMU_TIMING='" +
                                         value + "'"));
        EXPECT_THAT(ended.error, ::testing::HasSubstr(why + "; the emulated"));
    }
};

TEST_F(emu_timing, is_off_or_a_box_or_a_list)
{
    for (const char *good : {"", "off", "hls2", "hls3", "to_card=1.5",
                             "to_card=15e-1,doorbell=0,cards_per_uplink=4"}) {
        EXPECT_TRUE(child_passes("has_a_card", with_timing(good))) << good;
    }
}

TEST_F(emu_timing, says_what_is_wrong_with_a_list)
{
    const std::string bandwidth = "' is not a number of GB/s from 1e-6 on";
    const std::string time      = "' is not a number of microseconds";
    const std::string cards     = "' is not a number of cards, 1 to 64";
    const std::pair<const char *, std::string> wrong[] = {
        {"hls9", "unknown figure 'hls9'"},
        {"speed=1", "unknown figure 'speed'"},
        {"hbm=1,", "unknown figure ''"},
        {",hbm=1", "unknown figure ''"},
        {"hbm", "'hbm" + bandwidth},
        {"hbm=", "'hbm" + bandwidth},
        {"hbm=1GB", "'hbm" + bandwidth},
        {"hbm=0", "'hbm" + bandwidth},
        {"hbm=-1", "'hbm" + bandwidth},
        {"hbm=1e400", "'hbm" + bandwidth},
        {"hbm=inf", "'hbm" + bandwidth},
        {"doorbell=1,uplink=nan", "'uplink" + bandwidth},
        {"wakeup=-1", "'wakeup" + time},
        {"cards_per_uplink=0", "'cards_per_uplink" + cards},
        {"cards_per_uplink=1.5", "'cards_per_uplink" + cards},
    };
    for (const auto &[value, why] : wrong) {
        expect_refused(value, why);
    }
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

GAUDI_CHILD(uploads_and_downloads_at_once)
{
    used_card card;
    const auto begin    = clock_type::now();
    const uint64_t up   = card.start_upload(job_bytes);
    const uint64_t down = card.start({card.copy_chunk(
        pdma1, card.host + job_bytes, card.device + job_bytes, job_bytes)});
    GAUDI_CHILD_REQUIRE(card.wait(up) == completed);
    GAUDI_CHILD_REQUIRE(card.wait(down) == completed);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= job_time);
    return 0;
}

/* Card 0 copies to card 1, which uploads meanwhile. */
GAUDI_CHILD(copies_from_card_to_card)
{
    raw_card card;
    used_card other(1);
    const uint64_t page = device_page();
    const uint64_t src  = card.allocate_mapped(job_bytes);
    const int dmabuf    = export_range(other, other.device, page);
    uint64_t imported   = 0;
    GAUDI_CHILD_REQUIRE(import(card.fd(), dmabuf, page, imported) == 0);
    const auto begin = clock_type::now();
    const uint64_t across =
        card.start({card.copy_chunk(pdma1, imported, src, job_bytes)});
    const uint64_t up = other.start_upload(job_bytes);
    GAUDI_CHILD_REQUIRE(other.wait(up) == completed);
    GAUDI_CHILD_REQUIRE(card.wait(across) == completed);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= 2 * job_time);
    return 0;
}

/* What it has on its way goes with the card. */
GAUDI_CHILD(closes_a_card_that_is_busy)
{
    auto card = std::make_unique<used_card>();
    card->start_upload(job_bytes);
    card.reset();
    raw_card again;
    const uint64_t memory = again.allocate_mapped(job_bytes);
    const uint64_t seq =
        again.start({again.copy_chunk(edma0, memory, memory + 4096, 4096)});
    GAUDI_CHILD_REQUIRE(again.wait(seq) == completed);
    return 0;
}

GAUDI_CHILD(forks_beside_a_job)
{
    used_card card;
    const uint64_t seq = card.start_upload(job_bytes);
    forked_process child([] {
        raw_card own(1);
        const uint64_t memory = own.allocate_mapped(8192);
        return (own.copy(edma0, memory, memory + 4096, 4096) == completed) ? 0
                                                                           : 1;
    });
    GAUDI_CHILD_REQUIRE(child.wait().exit_code == 0);
    GAUDI_CHILD_REQUIRE(card.wait(seq) == completed);
    return 0;
}

TEST_F(emu_timing, jobs_take_as_long_as_in_the_model_and_in_order)
{
    EXPECT_TRUE(child_passes("uploads_slowly", with_timing(slow_links)));
}

TEST_F(emu_timing, both_directions_work_at_once)
{
    EXPECT_TRUE(
        child_passes("uploads_and_downloads_at_once", with_timing(slow_links)));
}

TEST_F(emu_timing, copies_between_cards_use_the_links_of_both)
{
    EXPECT_TRUE(
        child_passes("copies_from_card_to_card", with_timing("to_card=0.001")));
}

TEST_F(emu_timing, a_card_may_be_closed_meanwhile)
{
    EXPECT_TRUE(
        child_passes("closes_a_card_that_is_busy", with_timing(slow_links)));
}

TEST_F(emu_timing, a_process_may_fork_meanwhile)
{
    EXPECT_TRUE(child_passes("forks_beside_a_job", with_timing(slow_links)));
}

/* --- processes ------------------------------------------------------------ */

/* A link on which 1 MB take a millisecond. */
constexpr box::timing_figures one_gigabyte = {
    .doorbell         = 0,
    .completion       = 0,
    .wakeup           = 0,
    .to_card          = 1,
    .from_card        = 1,
    .pdma_engine      = 100,
    .pdma_all         = 100,
    .edma_engine      = 100,
    .edma_all         = 100,
    .hbm              = 100,
    .peer_read        = 100,
    .cards_per_uplink = 1,
    .uplink           = 100,
};

box::model_time now()
{
    return std::chrono::nanoseconds(clock_type::now().time_since_epoch())
        .count();
}

/* Bytes into card 0. */
box::flow upload(unsigned by_card, double bytes)
{
    box::flow added{};
    added.job   = 1;
    added.card  = static_cast<uint16_t>(by_card);
    added.start = now();
    added.left  = bytes;
    added.needs.add(0, box::shared_part::to_card);
    return added;
}

/* How long 1 MB takes into card 0, nanoseconds: the shortest of several, since
 * it begins later where this thread has to wait for a core. */
box::model_time time_of_a_megabyte(box::box_traffic &process)
{
    box::model_time shortest = INT64_MAX;
    for (int i = 0; i < 20; ++i) {
        const box::flow added = upload(1, 1e6);
        process.add(added);
        box::model_time asked;
        box::model_time end;
        do {
            asked = now();
            end   = process.earliest_end(1, 1);
        } while (end > asked);
        process.forget(1, 1);
        shortest = std::min(shortest, end - added.start);
    }
    return shortest;
}

std::string test_name()
{
    return "hlthunk-emu-test/" + std::to_string(getppid());
}

GAUDI_CHILD(has_much_on_its_way)
{
    box::box_traffic process(one_gigabyte, test_name());
    GAUDI_CHILD_REQUIRE(process.good());
    process.add(upload(2, 1e15));
    tell_parent("added");
    wait_for_parent();
    return 0;
}

class emu_timing_of_processes : public ::testing::Test {
protected:
    box::box_traffic process{one_gigabyte,
                             "hlthunk-emu-test/" + std::to_string(getpid())};
};

TEST_F(emu_timing_of_processes, share_the_link_of_a_card)
{
    ASSERT_TRUE(process.good());
    child_process other("has_much_on_its_way");
    ASSERT_EQ(other.read_line(), "added");
    EXPECT_GE(time_of_a_megabyte(process), 1'900'000) << "half of the link";
    other.write_line("end");
    EXPECT_EQ(other.wait().exit_code, 0);
    EXPECT_LE(time_of_a_megabyte(process), 1'100'000);
}

TEST_F(emu_timing_of_processes, get_back_what_a_killed_one_had)
{
    ASSERT_TRUE(process.good());
    child_process other("has_much_on_its_way");
    ASSERT_EQ(other.read_line(), "added");
    other.kill(SIGKILL);
    EXPECT_EQ(other.wait().signal, SIGKILL);
    EXPECT_LE(time_of_a_megabyte(process), 1'100'000);
}

TEST_F(emu_timing_of_processes, join_what_others_have_made)
{
    ASSERT_TRUE(process.good());
    box::box_traffic second(one_gigabyte,
                            "hlthunk-emu-test/" + std::to_string(getpid()));
    ASSERT_TRUE(second.good());
    second.add(upload(2, 1e15));
    EXPECT_GE(time_of_a_megabyte(process), 1'900'000);
}

} // namespace
