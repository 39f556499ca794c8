/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies: contents, and what the counters say about them. */
#include "gtest/emu/fixture.h"

#include <vector>

using namespace gaudi::test;

namespace {

/* Size, and distance of source and destination from the start of a page. */
struct shape {
    uint32_t size;
    uint32_t src_offset;
    uint32_t dst_offset;
};

/* Around the edges of pages, and of what is copied at a time. */
constexpr shape shapes[] = {{1, 4095, 1},  {4096, 0, 0},   {12289, 4093, 7},
                            {16385, 1, 1}, {262145, 5, 3}, {5000001, 4095, 1}};

/* Bytes around a copy that have to stay as they are. */
constexpr uint32_t margin = 64;

class emu_copy : public emu {};

TEST_F(emu_copy, moves_these_bytes_and_no_others_in_every_direction)
{
    const uint64_t device = card.allocate_mapped(device_page());
    for (const auto &[size, src_offset, dst_offset] : shapes) {
        SCOPED_TRACE(size);
        const uint32_t whole = size + 2 * margin;
        const uint64_t first = device + 4096 + src_offset;
        const uint64_t next  = device + device_page() / 2 + dst_offset;
        std::vector<char> from(src_offset + size);
        std::vector<char> to(dst_offset + whole, '#');
        const std::vector<char> blank(whole, '#');
        fill_pattern(from.data() + src_offset, size, size);
        ASSERT_EQ(card.write(next, blank.data(), whole), completed);

        const uint64_t src = card.map_host(from.data(), from.size());
        const uint64_t dst = card.map_host(to.data(), to.size());
        const auto before  = card.counters();
        EXPECT_EQ(card.copy(pdma0, first, src + src_offset, size), completed);
        EXPECT_EQ(card.copy(edma0, next + margin, first, size), completed);
        EXPECT_EQ(card.copy(pdma1, dst + dst_offset, next, whole), completed);
        const auto now = card.counters();
        EXPECT_EQ(now.host_to_device_bytes - before.host_to_device_bytes, size);
        EXPECT_EQ(now.device_to_device_bytes - before.device_to_device_bytes,
                  size);
        EXPECT_EQ(now.device_to_host_bytes - before.device_to_host_bytes,
                  whole);
        EXPECT_EQ(now.jobs - before.jobs, 3u);
        EXPECT_EQ(now.packets - before.packets, 4u) << "CP_DMA counts";

        const char *seen = to.data() + dst_offset;
        EXPECT_TRUE(all_bytes_are(to.data(), dst_offset + margin, '#'));
        EXPECT_TRUE(has_pattern(seen + margin, size, size));
        EXPECT_TRUE(all_bytes_are(seen + margin + size, margin, '#'));
    }
}

TEST_F(emu_copy, every_dma_queue_of_the_card_copies)
{
    const uint64_t va = card.allocate_mapped(1);
    char data[512];
    fill_pattern(data, sizeof(data), 4);
    ASSERT_EQ(card.write(va, data, sizeof(data)), completed);
    std::vector<uint32_t> queues = {pdma0, pdma0 + 1, pdma1};
    for (const uint32_t first : gaudi::shim::gaudi2_queue_edma) {
        for (uint32_t stream = 0; stream < 4; ++stream) {
            queues.push_back(first + stream);
        }
    }
    for (const uint32_t queue : queues) {
        const uint64_t dst = va + (queue + 1) * 4096;
        EXPECT_EQ(card.copy(queue, dst, va, sizeof(data)), completed) << queue;
        EXPECT_TRUE(marked(card, dst, sizeof(data), 4)) << queue;
    }
}

TEST_F(emu_copy, pdma_copies_host_to_host)
{
    char source[1000];
    char target[1000] = {};
    fill_pattern(source, sizeof(source), 5);
    EXPECT_EQ(card.copy(pdma0, card.map_host(target, sizeof(target)),
                        card.map_host(source, sizeof(source)), sizeof(source)),
              completed);
    EXPECT_TRUE(has_pattern(target, sizeof(target), 5));
    EXPECT_EQ(card.counters().host_to_host_bytes, sizeof(source));
}

TEST_F(emu_copy, packets_of_a_queue_run_in_order)
{
    /* Each packet reads what the one before it wrote. */
    constexpr uint32_t size = 40000;
    std::vector<char> data(size);
    fill_pattern(data.data(), size, 6);
    const uint64_t va   = card.allocate_mapped(1);
    const uint64_t host = card.map_host(data.data(), size);

    std::vector<gaudi::shim::lin_dma> packets = {
        gaudi::shim::make_lin_dma(va, host, size)};
    for (uint64_t i = 1; i < 20; ++i) {
        packets.push_back(gaudi::shim::make_lin_dma(va + i * size,
                                                    va + (i - 1) * size, size));
    }
    EXPECT_EQ(card.wait(card.start({card.copy_chunk(pdma0, packets)})),
              completed);
    EXPECT_TRUE(marked(card, va + 19 * size, size, 6));
}

TEST_F(emu_copy, nops_are_passed_over)
{
    char data[64];
    fill_pattern(data, sizeof(data), 9);
    const uint64_t va = card.allocate_mapped(1);
    const struct {
        uint32_t nop[2];
        gaudi::shim::lin_dma copy;
        uint32_t last_nop[2];
    } packets = {
        {0, gaudi::shim::packet_nop << gaudi::shim::packet_opcode_shift},
        gaudi::shim::make_lin_dma(va, card.map_host(data, 64), 64),
        {0, gaudi::shim::packet_nop << gaudi::shim::packet_opcode_shift}};
    EXPECT_EQ(card.wait(card.start(
                  {card.raw_chunk(pdma0, &packets, sizeof(packets))})),
              completed);
    EXPECT_TRUE(marked(card, va, 64, 9));
}

TEST_F(emu_copy, buffers_of_edma_without_barriers_at_their_end_are_counted)
{
    using namespace gaudi::shim;
    const uint64_t va   = card.allocate_mapped(1);
    const lin_dma copy  = make_lin_dma(va + 4096, va, 64);
    const uint32_t none = packet_nop << packet_opcode_shift;
    /* The barriers of a copy are about what is before it. */
    const lin_dma fencing = {copy.tsize, copy.ctl | packet_barriers, copy.src,
                             copy.dst};
    const struct {
        const char *name;
        lin_dma copy;
        uint32_t last_ctl;
        unsigned unfenced;
    } cases[] = {{"both", copy, make_barrier().ctl, 0},
                 {"engine alone", copy, none | packet_eng_barrier, 1},
                 {"message alone", copy, none | packet_msg_barrier, 1},
                 {"none", copy, none, 1},
                 {"in the copy", fencing, none, 1}};
    for (const auto &each : cases) {
        const struct {
            lin_dma copy;
            nop last;
        } lower            = {each.copy, {0, each.last_ctl}};
        const cp_dma upper = make_cp_dma(
            card.add_command_buffer(&lower, sizeof(lower)), sizeof(lower));
        const uint64_t before = card.counters().unfenced_buffers;
        EXPECT_EQ(card.wait(card.start(
                      {card.raw_chunk(edma0, &upper, sizeof(upper))})),
                  completed);
        EXPECT_EQ(card.counters().unfenced_buffers - before, each.unfenced)
            << each.name;
    }
    /* A long one, which is not run within its submission. */
    EXPECT_EQ(card.copy(edma0, va + mebi, va, 100000), completed);
    EXPECT_EQ(card.counters().unfenced_buffers, 5u);
    /* The other engines need none. */
    char data[64] = {};
    EXPECT_EQ(card.write(va, data, sizeof(data)), completed);
    EXPECT_EQ(card.counters().unfenced_buffers, 5u);
}

} // namespace
