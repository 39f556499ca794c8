/* SPDX-License-Identifier: BSD-3-Clause */
/* What copies pass in the timing model. */
#include "hlthunk_emulator/copy_route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace {

namespace box = gaudi::emu;

using box::memory_kind;
using box::shared_part;

constexpr box::memory_side host{memory_kind::host, 0};
constexpr box::memory_side own{memory_kind::device, 0};

constexpr box::memory_side peer(unsigned card)
{
    return {memory_kind::imported, card};
}

struct passed {
    unsigned card;
    shared_part part;
};

/* Whether a copy by PDMA 0 of a card passes just this, beside engines. */
bool passes(unsigned card, const box::memory_side &from,
            const box::memory_side &to, const std::vector<passed> &wanted,
            const box::timing_figures &speed = box::hls2_figures)
{
    box::route expected;
    for (const passed &each : wanted) {
        expected.add(each.card, each.part);
    }
    expected.add(card, shared_part::pdma_all);
    expected.add(card, shared_part::first_pdma);
    const box::engine_copy copy{0, 0, 0, 0, to, from};
    const auto seen   = box::route_of(speed, card, copy);
    const auto parts  = seen.parts();
    const auto wished = expected.parts();
    return std::is_permutation(parts.begin(), parts.end(), wished.begin(),
                               wished.end());
}

TEST(emu_copy_route, shares_the_uplink_to_the_host)
{
    using enum shared_part;
    EXPECT_TRUE(passes(3, host, own, {{3, to_card}, {2, to_cards}, {3, hbm}}));
    EXPECT_TRUE(
        passes(2, own, host, {{2, from_card}, {2, from_cards}, {2, hbm}}));
}

TEST(emu_copy_route, stays_below_the_switches_between_cards)
{
    using enum shared_part;
    EXPECT_TRUE(passes(3, own, peer(4),
                       {{3, hbm}, {3, from_card}, {4, to_card}, {4, hbm}}));
    EXPECT_TRUE(passes(
        3, peer(4), own,
        {{4, hbm}, {4, from_card}, {3, to_card}, {3, peer_reads}, {3, hbm}}));
    EXPECT_TRUE(passes(3, peer(4), peer(4),
                       {{4, hbm},
                        {4, from_card},
                        {3, to_card},
                        {3, peer_reads},
                        {3, from_card},
                        {4, to_card},
                        {4, hbm}}));
}

TEST(emu_copy_route, leaves_out_links_that_are_not_shared)
{
    using enum shared_part;
    box::timing_figures speed = box::hls2_figures;
    speed.cards_per_uplink    = 1;
    EXPECT_TRUE(passes(3, host, own, {{3, to_card}, {3, hbm}}, speed));
}

} // namespace
