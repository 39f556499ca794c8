/* SPDX-License-Identifier: BSD-3-Clause */
/* The packets, bit by bit. */
#include "hlthunk_shim/hlthunk/lin_dma.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

using namespace gaudi::shim;

namespace {

constexpr uint64_t gibi = uint64_t{1} << 30;

/* hl-thunk-open specs/gaudi2/gaudi2_packets.h, written down once more. */
static_assert(sizeof(lin_dma) == 24);
static_assert(offsetof(lin_dma, tsize) == 0);
static_assert(offsetof(lin_dma, ctl) == 4);
static_assert(offsetof(lin_dma, src) == 8);
static_assert(offsetof(lin_dma, dst) == 16);
static_assert(sizeof(cp_dma) == 16);
static_assert(offsetof(cp_dma, ctl) == 4);
static_assert(offsetof(cp_dma, src) == 8);
static_assert(make_lin_dma(1, 2, 3).ctl == 0x89000000);
static_assert(make_cp_dma(1, 2).ctl == 0x05000000);
static_assert(sizeof(nop) == 8);
static_assert(offsetof(nop, ctl) == 4);
static_assert(make_barrier().ctl == 0xaa000000);
static_assert(lin_dma_max_bytes <= UINT32_MAX);
static_assert(lin_dma_max_bytes % 4096 == 0);

TEST(shim_lin_dma, says_what_to_copy_where)
{
    const lin_dma packet =
        make_lin_dma(0x1001001800000000, 0xfff0000000000123, 0xfffff000);
    EXPECT_EQ(packet.dst, 0x1001001800000000u);
    EXPECT_EQ(packet.src, 0xfff0000000000123u);
    EXPECT_EQ(packet.tsize, 0xfffff000u);
    EXPECT_EQ((packet.ctl >> 24) & 0x1f, 9u) << "the opcode";
    EXPECT_NE(packet.ctl & (1u << 31), 0u) << "the message barrier";
    EXPECT_EQ(packet.ctl & 0x00ffffff, 0u) << "no memset, no completion write";
}

TEST(shim_lin_dma, cp_dma_points_at_the_lower_buffer)
{
    const cp_dma packet = make_cp_dma(0xfff0000000001000, 48);
    EXPECT_EQ(packet.src, 0xfff0000000001000u);
    EXPECT_EQ(packet.tsize, 48u);
    EXPECT_EQ((packet.ctl >> 24) & 0x1f, 5u);
}

/* Everything that a copy becomes, in rounds of a small capacity. */
std::vector<lin_dma> split(uint64_t dst, uint64_t src, uint64_t length,
                           uint64_t max_bytes, size_t capacity)
{
    std::vector<lin_dma> all;
    while (length > 0) {
        std::vector<lin_dma> round(capacity);
        const size_t count =
            build_lin_dma(round.data(), capacity, max_bytes, dst, src, length);
        EXPECT_GT(count, 0u);
        EXPECT_LE(count, capacity);
        all.insert(all.end(), round.begin(),
                   round.begin() + static_cast<ptrdiff_t>(count));
    }
    return all;
}

TEST(shim_lin_dma, a_split_copy_covers_every_byte_once)
{
    const uint64_t lengths[] = {1,
                                4095,
                                4096,
                                4097,
                                1000000,
                                4 * gibi - 4096,
                                4 * gibi - 1,
                                4 * gibi,
                                4 * gibi + 1,
                                96 * gibi};
    for (uint64_t length : lengths) {
        for (uint64_t max_bytes :
             {lin_dma_max_bytes, uint64_t{1} << 31, uint64_t{48} << 20}) {
            const uint64_t dst = 0x1001001800000000;
            const uint64_t src = 0xfff0000000000001;
            uint64_t done      = 0;
            for (const lin_dma &packet :
                 split(dst, src, length, max_bytes, 3)) {
                ASSERT_GT(packet.tsize, 0u);
                ASSERT_LE(packet.tsize, max_bytes);
                ASSERT_EQ(packet.dst, dst + done);
                ASSERT_EQ(packet.src, src + done);
                done += packet.tsize;
            }
            EXPECT_EQ(done, length);
        }
    }
}

TEST(shim_lin_dma, a_packet_is_as_long_as_it_may_be)
{
    const auto packets = split(0, 0, 10 * gibi, lin_dma_max_bytes, 8);
    ASSERT_EQ(packets.size(), 3u);
    EXPECT_EQ(packets[0].tsize, 0xfffff000u);
    EXPECT_EQ(packets[1].tsize, 0xfffff000u);
    EXPECT_EQ(packets[2].tsize, 2 * gibi + 8192);
}

TEST(shim_lin_dma, a_copy_of_nothing_has_no_packets)
{
    lin_dma packet{};
    uint64_t dst    = 1;
    uint64_t src    = 2;
    uint64_t length = 0;
    EXPECT_EQ(build_lin_dma(&packet, 1, 4096, dst, src, length), 0u);
    EXPECT_EQ(dst, 1u);
    EXPECT_EQ(src, 2u);
}

TEST(shim_lin_dma, a_full_buffer_leaves_the_rest_for_the_next)
{
    lin_dma packets[3] = {};
    uint64_t dst       = 0x10000;
    uint64_t src       = 0x20000;
    uint64_t length    = 10000;
    EXPECT_EQ(build_lin_dma(packets, 2, 4096, dst, src, length), 2u);
    EXPECT_EQ(dst, 0x12000u);
    EXPECT_EQ(src, 0x22000u);
    EXPECT_EQ(length, 10000u - 8192);
    EXPECT_EQ(packets[2].tsize, 0u) << "nothing behind the capacity";
}

} // namespace
