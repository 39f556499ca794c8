/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/wiring.h"

#include "hlthunk_emulator/settings.h"

#include <bit>
#include <span>
#include <string_view>

namespace gaudi::emu {

namespace {

/* Of each card: for each port the number of the other card, and the letter of
 * its port, from a on. */
using card_row = std::string_view;

constexpr card_row hls2[] = {
    "3a3b7c3d7e7f4g4h--4j2q2r2s1n1o1p6q6r6s5t5u5v----",
    "2a2b6c2d6e6f5g5h--5j7k7l7m0n0o0p3q3r3s4t4u4v----",
    "1a1b5c1d5e5f6g6h--6j3k3l3m4n4o4p0k0l0m7t7u7v----",
    "0a0b4c0d4e4f7g7h--7j2k2l2m5n5o5p1q1r1s6t6u6v----",
    "7a7b3c7d3e3f0g0h--0j5k5l5m2n2o2p6k6l6m1t1u1v----",
    "6a6b2c6d2e2f1g1h--1j4k4l4m3n3o3p7q7r7s0t0u0v----",
    "5a5b1c5d1e1f2g2h--2j4q4r4s7n7o7p0q0r0s3t3u3v----",
    "4a4b0c4d0e0f3g3h--3j1k1l1m6n6o6p5q5r5s2t2u2v----"};

constexpr card_row hls3[] = {
    "1m1n3e3f2m2n5m5n4a4b7a7b6m6n6e7r4s--5i2h----1l3w",
    "5k5l7q6f5g--4u3t----2l0w0a0b2q2r3a3b4w4x6o6p7w7x",
    "6k6l4q5f6g--7u0t----3x1k0e0f3c3d1o1p5q5r4c4d7c7d",
    "1q1r2o2p0c0d5o5p7e7f4e4f6q6r5e4r7s--6i1h----0x2k",
    "0i0j2u2v3k3l5u5v7i7j6s6t6b5a----2c3p0q--1g7v1s1t",
    "4n7m----3o2d1e--0s6j1a1b0g0h3g3h2s2t6u6v4g4h7g7h",
    "7n4m----0o1d2e--3s5j2a2b0m0n1u1v3m3n4k4l5s5t7k7l",
    "0k0l2w2x3i3j5w5x4i4j6w6x5b6a----1c0p3q--2g4v1w1x"};

constexpr card_row hl_288[] = {
    "1a1b1c1d1e1f--------3k3l3m3n3o3p2q2r2s2t2u2v----",
    "0a0b0c0d0e0f--------2k2l2m2n2o2p3q3r3s3t3u3v----",
    "3a3b3c3d3e3f--------1k1l1m1n1o1p0q0r0s0t0u0v----",
    "2a2b2c2d2e2f--------0k0l0m0n0o0p1q1r1s1t1u1v----"};

constexpr card_row hl_338[] = {
    "----1c1d1e1f1g1h--------3m3n3o3p2q2r3s3t2u2v2w2x",
    "----0c0d0e0f0g0h--------2m2n2o2p3q3r2s2t3u3v3w3x",
    "----3c3d3e3f3g3h--------1m1n1o1p0q0r1s1t0u0v0w0x",
    "----2c2d2e2f2g2h--------0m0n0o0p1q1r0s0t1u1v1w1x"};

struct plan {
    uint32_t pci_id;
    std::span<const card_row> cards;
    uint32_t enabled;
};

constexpr plan plans[] = {{0x1020, hls2, 0xffffff},
                          {0x1021, hl_288, 0x3fffff},
                          {0x1060, hls3, 0xffffff},
                          {0x1063, hl_338, 0xfffffc}};

const plan &plan_of_box()
{
    const plan *found = plans;
    while (found->pci_id != get_settings().kind->pci_id) {
        ++found;
    }
    return *found;
}

constexpr bool are_symmetric(const plan &of)
{
    for (unsigned card = 0; card < of.cards.size(); ++card) {
        for (unsigned port = 0; port < ports_of_card; ++port) {
            const char *there = &of.cards[card][size_t{2} * port];
            if (there[0] == '-') {
                continue;
            }
            const card_row other =
                of.cards[static_cast<size_t>(there[0] - '0')];
            const char *back =
                &other[static_cast<size_t>(2 * (there[1] - 'a'))];
            if ((back[0] != static_cast<char>('0' + card)) ||
                (back[1] != static_cast<char>('a' + port))) {
                return false;
            }
        }
    }
    return true;
}

static_assert(are_symmetric(plans[0]) && are_symmetric(plans[1]) &&
              are_symmetric(plans[2]) && are_symmetric(plans[3]));

} // namespace

port_masks ports_of(unsigned card)
{
    const plan &is     = plan_of_box();
    const card_row row = is.cards[card % is.cards.size()];
    port_masks masks{is.enabled, 0};
    for (unsigned port = 0; port < ports_of_card; ++port) {
        masks.external |= (row[size_t{2} * port] == '-') ? 1u << port : 0;
    }
    masks.external &= masks.enabled;
    return masks;
}

std::optional<port_end> peer_of(port_end own)
{
    const plan &is     = plan_of_box();
    const auto cards   = static_cast<unsigned>(is.cards.size());
    const card_row row = is.cards[own.card % cards];
    const char *there  = &row[size_t{2} * own.port];
    const unsigned card =
        own.card - own.card % cards + static_cast<unsigned>(there[0] - '0');
    if ((there[0] == '-') || (card >= get_settings().devices)) {
        return std::nullopt;
    }
    return port_end{card, static_cast<unsigned>(there[1] - 'a')};
}

unsigned verbs_number(port_end own)
{
    const uint32_t enabled = ports_of(own.card).enabled;
    return static_cast<unsigned>(
        std::popcount(enabled & ((2u << own.port) - 1)));
}

std::optional<unsigned> port_of_verbs_number(unsigned card, unsigned number)
{
    const uint32_t enabled = ports_of(card).enabled;
    for (unsigned port = 0; port < ports_of_card; ++port) {
        if ((((enabled >> port) & 1) != 0) &&
            (verbs_number({card, port}) == number)) {
            return port;
        }
    }
    return std::nullopt;
}

} // namespace gaudi::emu
