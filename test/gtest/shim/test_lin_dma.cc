/* SPDX-License-Identifier: BSD-3-Clause */
/* The packets, bit by bit. */
#include "hlthunk_shim/abi/lin_dma.h"

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
    for (const uint64_t length : lengths) {
        const uint64_t dst = 0x1001001800000000;
        const uint64_t src = 0xfff0000000000001;
        std::vector<lin_dma> packets(40);
        packets.resize(build_lin_dma(packets.data(), dst, src, length));
        uint64_t done = 0;
        for (const lin_dma &packet : packets) {
            ASSERT_GT(packet.tsize, 0u);
            ASSERT_LE(packet.tsize, lin_dma_max_bytes);
            ASSERT_EQ(packet.dst, dst + done);
            ASSERT_EQ(packet.src, src + done);
            done += packet.tsize;
        }
        EXPECT_EQ(done, length);
    }
}

} // namespace
