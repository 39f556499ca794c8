/* SPDX-License-Identifier: BSD-3-Clause */
/* The timing model by itself: arithmetic on times that the tests make up. */
#include "hlthunk_emulator/traffic.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

using namespace gaudi::emu;

namespace {

/* One byte per nanosecond is 1 GB/s. */
constexpr timing_figures speed = {
    .doorbell         = 0,
    .completion       = 0,
    .wakeup           = 0,
    .to_card          = 1,
    .from_card        = 1,
    .pdma_engine      = 1,
    .pdma_all         = 10,
    .edma_engine      = 4,
    .edma_all         = 6,
    .hbm              = 10,
    .peer_read        = 0.5,
    .cards_per_uplink = 2,
    .uplink           = 1.5,
};

class emu_traffic : public ::testing::Test {
protected:
    /* Add a flow of its own queue, unless one is given. @return Its job. */
    uint64_t add(double bytes, const route &needs, unsigned queue = 0,
                 model_time start = 0)
    {
        flow added{};
        added.job   = ++jobs;
        added.start = start;
        added.left  = bytes;
        added.queue = static_cast<uint16_t>((queue != 0) ? queue : 1000 + jobs);
        added.needs = needs;
        EXPECT_TRUE(model->add(added));
        return jobs;
    }

    static route through(std::initializer_list<shared_part> parts,
                         unsigned card = 0)
    {
        route needs;
        for (const shared_part part : parts) {
            needs.add(card, part);
        }
        return needs;
    }

    void advance(model_time to) { model->advance(speed, to); }

    /* 0 while it is under way. */
    [[nodiscard]] model_time end_of(uint64_t job) const
    {
        for (const flow &known : model->flows()) {
            if (known.job == job) {
                return known.end;
            }
        }
        return -1;
    }

    [[nodiscard]] model_time earliest(uint64_t job) const
    {
        return model->earliest_end(speed, 0, job);
    }

    std::unique_ptr<traffic> model = std::make_unique<traffic>();
    uint64_t jobs                  = 0;
    const route in                 = through({shared_part::to_card});
    const route out                = through({shared_part::from_card});
};

TEST_F(emu_traffic, one_transfer_takes_its_bytes_by_the_bandwidth)
{
    const uint64_t job = add(1000, in);
    EXPECT_EQ(earliest(job), 1000);
    advance(999);
    EXPECT_EQ(end_of(job), 0);
    advance(5000);
    EXPECT_EQ(end_of(job), 1000);
}

TEST_F(emu_traffic, two_share_a_link_and_the_longer_one_gets_all_of_it_then)
{
    const uint64_t longer  = add(1000, in);
    const uint64_t shorter = add(500, in);
    advance(5000);
    EXPECT_EQ(end_of(shorter), 1000);
    EXPECT_EQ(end_of(longer), 1500);
}

TEST_F(emu_traffic, who_comes_later_takes_its_share_from_then_on)
{
    const uint64_t first = add(1000, in);
    advance(500);
    const uint64_t second = add(1000, in, 0, 500);
    advance(5000);
    EXPECT_EQ(end_of(first), 1500);
    EXPECT_EQ(end_of(second), 2000);
}

TEST_F(emu_traffic, a_transfer_begins_when_it_says)
{
    const uint64_t job = add(1000, in, 0, 300);
    EXPECT_EQ(earliest(job), 1300);
    advance(5000);
    EXPECT_EQ(end_of(job), 1300);
}

TEST_F(emu_traffic, both_directions_do_not_disturb_each_other)
{
    const uint64_t there = add(1000, in);
    const uint64_t back  = add(1000, out);
    advance(5000);
    EXPECT_EQ(end_of(there), 1000);
    EXPECT_EQ(end_of(back), 1000);
}

TEST_F(emu_traffic, cards_do_not_disturb_each_other)
{
    const uint64_t here  = add(1000, in);
    const uint64_t there = add(1000, through({shared_part::to_card}, 63));
    advance(5000);
    EXPECT_EQ(end_of(here), 1000);
    EXPECT_EQ(end_of(there), 1000);
}

TEST_F(emu_traffic, what_passes_a_switch_shares_its_link)
{
    /* 1.5 GB/s for two cards of 1 GB/s each. */
    route other = through({shared_part::to_card}, 1);
    route one   = in;
    for (route *each : {&one, &other}) {
        each->add(0, shared_part::to_cards);
    }
    const uint64_t first  = add(750, one);
    const uint64_t second = add(750, other);
    const uint64_t outward =
        add(1000, through({shared_part::from_card, shared_part::from_cards}));
    advance(5000);
    EXPECT_EQ(end_of(first), 1000);
    EXPECT_EQ(end_of(second), 1000);
    EXPECT_EQ(end_of(outward), 1000);
}

TEST_F(emu_traffic, reads_of_peers_are_slower_than_writes_to_them)
{
    route there = through({shared_part::to_card}, 1);
    route back  = through({shared_part::from_card}, 1);
    there.add(0, shared_part::from_card);
    back.add(0, shared_part::to_card);
    back.add(0, shared_part::peer_reads);
    const uint64_t write = add(1000, there);
    const uint64_t read  = add(1000, back);
    advance(5000);
    EXPECT_EQ(end_of(write), 1000);
    EXPECT_EQ(end_of(read), 2000);
}

TEST_F(emu_traffic, transfers_of_a_queue_follow_each_other)
{
    const uint64_t first  = add(1000, in, 7);
    const uint64_t second = add(1000, out, 7);
    EXPECT_EQ(earliest(second), 2000);
    advance(5000);
    EXPECT_EQ(end_of(first), 1000);
    EXPECT_EQ(end_of(second), 2000);
}

TEST_F(emu_traffic, copies_of_a_card_are_bound_by_engine_then_by_all_of_them)
{
    auto on_card = [&](unsigned engine) {
        route needs = through(
            {shared_part::hbm, shared_part::hbm, shared_part::edma_all});
        needs.add(0,
                  static_cast<shared_part>(
                      static_cast<unsigned>(shared_part::first_edma) + engine));
        return needs;
    };
    const uint64_t alone = add(4000, on_card(0));
    EXPECT_EQ(earliest(alone), 1000) << "4 GB/s of one engine";
    advance(1000);
    EXPECT_EQ(end_of(alone), 1000);
    /* 6 GB/s of all engines; but the memory gives 10 for both directions. */
    const uint64_t one   = add(2500, on_card(0), 0, 1000);
    const uint64_t other = add(2500, on_card(7), 0, 1000);
    advance(5000);
    EXPECT_EQ(end_of(one), 2000);
    EXPECT_EQ(end_of(other), 2000);
}

TEST_F(emu_traffic, who_is_bound_elsewhere_leaves_the_rest_to_others)
{
    /* Two share the link out of card 1; one of them goes into card 0, where
     * another one comes in from the host. */
    route peer = through({shared_part::from_card}, 1);
    peer.add(0, shared_part::to_card);
    const uint64_t card_to_card = add(1000, peer);
    const uint64_t more      = add(1000, through({shared_part::from_card}, 1));
    const uint64_t again     = add(1000, through({shared_part::from_card}, 1));
    const uint64_t from_host = add(1000, in);
    advance(1500);
    EXPECT_EQ(end_of(from_host), 1500) << "at two thirds of its link";
    advance(9000);
    EXPECT_EQ(end_of(card_to_card), 3000) << "at a third of the other card's";
    EXPECT_EQ(end_of(more), 3000);
    EXPECT_EQ(end_of(again), 3000);
}

TEST_F(emu_traffic, what_is_forgotten_gives_its_share_back)
{
    const uint64_t stays = add(1000, in);
    const uint64_t goes  = add(100000, in);
    advance(500);
    model->erase_if([&](const flow &known) { return known.job == goes; });
    advance(5000);
    EXPECT_EQ(end_of(stays), 1250);
    EXPECT_EQ(end_of(goes), -1);
}

TEST_F(emu_traffic, a_job_ends_with_its_last_flow)
{
    flow part{};
    part.job   = 1;
    part.queue = 1;
    part.left  = 1000;
    part.needs = in;
    EXPECT_TRUE(model->add(part));
    EXPECT_TRUE(model->add(part)) << "goes on where the first one ends";
    part.queue = 2;
    part.left  = 500;
    part.needs = out;
    EXPECT_TRUE(model->add(part));
    EXPECT_EQ(model->flows().size(), 2u);
    EXPECT_EQ(earliest(1), 2000);
    advance(1000);
    EXPECT_EQ(earliest(1), 2000);
    advance(3000);
    EXPECT_EQ(earliest(1), 2000);
}

TEST_F(emu_traffic, an_unknown_job_has_ended)
{
    EXPECT_EQ(earliest(99), 0);
}

TEST_F(emu_traffic, a_full_model_says_so)
{
    flow added{};
    added.left  = 1;
    added.needs = in;
    while (model->add(added)) {
        ASSERT_LT(added.job, 100000u);
        ++added.job;
    }
    EXPECT_GE(added.job, 64u * 8);
}

/* What comes out does not depend on when somebody looks, and no look promises
 * an end that is later than the real one. */
TEST_F(emu_traffic, looking_changes_nothing)
{
    std::minstd_rand random(14);
    auto below    = [&](unsigned end) { return random() % end; };
    auto seldom   = std::make_unique<traffic>();
    model_time at = 0;
    for (uint64_t job = 1; job <= 100; ++job) {
        flow added{};
        added.job   = job;
        added.left  = 1 + below(5000);
        added.start = at + below(300);
        added.queue = static_cast<uint16_t>(below(6));
        added.needs.add(0, static_cast<shared_part>(below(4)));
        added.needs.add(0, shared_part::pdma_all);
        model->advance(speed, at);
        seldom->advance(speed, at);
        EXPECT_TRUE(model->add(added));
        EXPECT_TRUE(seldom->add(added));
        for (const model_time next = at + below(2000); at < next;
             at += 1 + below(50)) {
            model->advance(speed, at);
        }
    }
    std::map<uint64_t, model_time> promised;
    for (; at < 2'000'000; at += 100) {
        model->advance(speed, at);
        for (const flow &known : model->flows()) {
            promised[known.job] =
                std::max(promised[known.job], earliest(known.job));
        }
    }
    seldom->advance(speed, at);
    const auto often = model->flows();
    const auto once  = seldom->flows();
    ASSERT_EQ(often.size(), once.size());
    for (size_t i = 0; i < often.size(); ++i) {
        ASSERT_GT(often[i].end, 0);
        /* Each look may round by a nanosecond. */
        EXPECT_NEAR(static_cast<double>(often[i].end),
                    static_cast<double>(once[i].end), 1000);
        EXPECT_LE(promised[often[i].job], often[i].end + 1);
    }
}

} // namespace
