/* SPDX-License-Identifier: BSD-3-Clause */
/* What copies pass in the timing model, by how the box is wired. */
#include "hlthunk_emulator/copy_route.h"

#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <algorithm>
#include <vector>

using namespace gaudi::test;

namespace {

namespace box = gaudi::emu;

using box::memory_kind;
using box::shared_part;

constexpr box::memory_side host{memory_kind::host, 0, nullptr};
constexpr box::memory_side own{memory_kind::device, 0, nullptr};

constexpr box::memory_side peer(unsigned card)
{
    return {memory_kind::imported, card, nullptr};
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

GAUDI_CHILD(passes_switches_alone)
{
    using enum shared_part;
    GAUDI_CHILD_REQUIRE(
        passes(3, host, own, {{3, to_card}, {2, to_cards}, {3, hbm}}));
    GAUDI_CHILD_REQUIRE(
        passes(2, own, host, {{2, from_card}, {2, from_cards}, {2, hbm}}));
    GAUDI_CHILD_REQUIRE(passes(
        3, own, peer(4), {{3, hbm}, {3, from_card}, {4, to_card}, {4, hbm}}));
    GAUDI_CHILD_REQUIRE(passes(
        3, peer(4), own,
        {{4, hbm}, {4, from_card}, {3, to_card}, {3, peer_reads}, {3, hbm}}));
    return 0;
}

GAUDI_CHILD(passes_the_root)
{
    using enum shared_part;
    GAUDI_CHILD_REQUIRE(passes(3, own, peer(4),
                               {{3, hbm},
                                {3, from_card},
                                {2, from_cards},
                                {4, to_cards},
                                {4, to_card},
                                {4, hbm}}));
    GAUDI_CHILD_REQUIRE(passes(3, peer(4), peer(4),
                               {{4, hbm},
                                {4, from_card},
                                {4, from_cards},
                                {2, to_cards},
                                {3, to_card},
                                {3, peer_reads},
                                {3, from_card},
                                {2, from_cards},
                                {4, to_cards},
                                {4, to_card},
                                {4, hbm}}));
    return 0;
}

GAUDI_CHILD(shares_no_uplink)
{
    using enum shared_part;
    box::timing_figures speed = box::hls2_figures;
    speed.cards_per_uplink    = 1;
    GAUDI_CHILD_REQUIRE(passes(3, host, own, {{3, to_card}, {3, hbm}}, speed));
    return 0;
}

TEST(emu_copy_route, stays_below_the_switch_between_cards_of_a_group)
{
    EXPECT_TRUE(child_passes("passes_switches_alone"));
    EXPECT_TRUE(child_passes(
        "passes_switches_alone",
        {{{"HLTHUNK_EMU_P2P", "3-4"}, {"HLTHUNK_EMU_PCI", "pt,user"}}}));
}

TEST(emu_copy_route, goes_through_the_root_between_others)
{
    for (const auto &[name, value] : environment{{"HLTHUNK_EMU_P2P", "0-3,4-7"},
                                                 {"HLTHUNK_EMU_PCI", "acs"},
                                                 {"HLTHUNK_EMU_PCI", "iommu"},
                                                 {"HLTHUNK_EMU_PCI", "root"}}) {
        EXPECT_TRUE(child_passes("passes_the_root", {{{name, value}}}))
            << value;
    }
}

TEST(emu_copy_route, leaves_out_links_that_are_not_shared)
{
    EXPECT_TRUE(child_passes("shares_no_uplink"));
}

} // namespace
