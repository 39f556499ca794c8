/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies: contents, and what the counters say about them. */
#include "gtest/emu/fixture.h"

#include <random>
#include <thread>
#include <vector>

using namespace gaudi::test;

namespace {

/* Size, and distance of source and destination from the start of a page. */
struct shape {
    uint32_t size;
    uint32_t src_offset;
    uint32_t dst_offset;
};

std::ostream &operator<<(std::ostream &stream, const shape &value)
{
    return stream << value.size << " bytes from " << value.src_offset << " to "
                  << value.dst_offset;
}

class emu_copies : public emu, public ::testing::WithParamInterface<shape> {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        device = card.allocate_mapped(device_page());
        before = card.counters();
    }

    hlthunk_emu_counters moved() const
    {
        hlthunk_emu_counters now = card.counters();
        now.host_to_device_bytes -= before.host_to_device_bytes;
        now.device_to_host_bytes -= before.device_to_host_bytes;
        now.device_to_device_bytes -= before.device_to_device_bytes;
        now.host_to_host_bytes -= before.host_to_host_bytes;
        now.packets -= before.packets;
        now.jobs -= before.jobs;
        return now;
    }

    /* Fill device memory with a byte value. */
    void clear(uint64_t va, uint32_t size, char value)
    {
        const std::vector<char> bytes(size, value);
        ASSERT_EQ(card.write(va, bytes.data(), size), completed);
    }

    uint64_t device = 0;
    hlthunk_emu_counters before{};
};

/* Bytes around a copy that have to stay as they are. */
constexpr uint32_t margin = 64;

TEST_P(emu_copies, host_to_device_moves_these_bytes_and_no_others)
{
    const auto [size, src_offset, dst_offset] = GetParam();
    guarded_buffer source(size);
    fill_pattern(source.data(), size, 1);
    const uint64_t dst = device + 4096 + dst_offset;
    clear(dst - margin, size + 2 * margin, '#');
    before = card.counters();

    const uint64_t host = card.map_host(source.data(), size);
    EXPECT_EQ(card.copy(pdma0, dst, host, size), completed);
    EXPECT_EQ(moved().host_to_device_bytes, size);
    EXPECT_EQ(moved().device_to_host_bytes, 0u);
    EXPECT_EQ(moved().packets, 1u);
    EXPECT_EQ(moved().jobs, 1u);

    std::vector<char> seen(size + 2 * margin);
    ASSERT_EQ(card.read(seen.data(), dst - margin,
                        static_cast<uint32_t>(seen.size())),
              completed);
    EXPECT_TRUE(all_bytes_are(seen.data(), margin, '#'));
    EXPECT_TRUE(has_pattern(seen.data() + margin, size, 1));
    EXPECT_TRUE(all_bytes_are(seen.data() + margin + size, margin, '#'));
}

TEST_P(emu_copies, device_to_host_moves_these_bytes_and_no_others)
{
    const auto [size, src_offset, dst_offset] = GetParam();
    std::vector<char> data(size);
    fill_pattern(data.data(), size, 2);
    const uint64_t src = device + src_offset;
    ASSERT_EQ(card.write(src, data.data(), size), completed);
    before = card.counters();

    std::vector<char> target(dst_offset + size + 2 * margin, '#');
    const uint64_t host = card.map_host(target.data(), target.size());
    EXPECT_EQ(card.copy(pdma1, host + dst_offset + margin, src, size),
              completed);
    EXPECT_EQ(moved().device_to_host_bytes, size);
    EXPECT_EQ(moved().host_to_device_bytes, 0u);

    const char *first = target.data() + dst_offset + margin;
    EXPECT_TRUE(all_bytes_are(target.data(), dst_offset + margin, '#'));
    EXPECT_TRUE(has_pattern(first, size, 2));
    EXPECT_TRUE(all_bytes_are(first + size, margin, '#'));
}

TEST_P(emu_copies, device_to_device_moves_these_bytes_and_no_others)
{
    const auto [size, src_offset, dst_offset] = GetParam();
    std::vector<char> data(size);
    fill_pattern(data.data(), size, 3);
    const uint64_t src = device + src_offset;
    const uint64_t dst = device + device_page() / 2 + dst_offset + margin;
    ASSERT_EQ(card.write(src, data.data(), size), completed);
    clear(dst - margin, size + 2 * margin, '#');
    before = card.counters();

    EXPECT_EQ(card.copy(edma0, dst, src, size), completed);
    EXPECT_EQ(moved().device_to_device_bytes, size);
    EXPECT_EQ(moved().host_to_device_bytes, 0u);
    EXPECT_EQ(moved().packets, 2u) << "the CP_DMA counts";

    std::vector<char> seen(size + 2 * margin);
    ASSERT_EQ(card.read(seen.data(), dst - margin,
                        static_cast<uint32_t>(seen.size())),
              completed);
    EXPECT_TRUE(all_bytes_are(seen.data(), margin, '#'));
    EXPECT_TRUE(has_pattern(seen.data() + margin, size, 3));
    EXPECT_TRUE(all_bytes_are(seen.data() + margin + size, margin, '#'));
}

/* Around the edges of pages, of what runs inside the submission (16 KiB) and of
 * what an engine copies at a time (256 KiB). */
INSTANTIATE_TEST_SUITE_P(
    shapes, emu_copies,
    ::testing::Values(shape{1, 0, 0}, shape{1, 4095, 1}, shape{2, 4095, 4095},
                      shape{3, 1, 2}, shape{4095, 0, 0}, shape{4096, 0, 0},
                      shape{4097, 0, 0}, shape{4096, 1, 4095},
                      shape{12289, 4093, 7}, shape{16383, 0, 0},
                      shape{16384, 0, 0}, shape{16385, 1, 1},
                      shape{262143, 0, 0}, shape{262144, 0, 0},
                      shape{262145, 5, 3}, shape{3000001, 4095, 1},
                      shape{5000001, 4095, 1}));

class emu_copy : public emu {};

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

TEST_F(emu_copy, jobs_of_a_queue_run_in_order)
{
    constexpr uint32_t size = 300000;
    std::vector<char> data(size);
    const uint64_t va   = card.allocate_mapped(1);
    const uint64_t host = card.map_host(data.data(), size);
    fill_pattern(data.data(), size, 7);

    uint64_t last = card.start({card.copy_chunk(pdma0, va, host, size)});
    for (uint64_t i = 1; i < 30; ++i) {
        last = card.start(
            {card.copy_chunk(pdma0, va + i * size, va + (i - 1) * size, size)});
    }
    EXPECT_EQ(card.wait(last), completed);
    EXPECT_TRUE(marked(card, va + 29 * size, size, 7));
}

TEST_F(emu_copy, a_copy_may_span_neighbouring_mappings)
{
    constexpr uint32_t size = 1 << 20;
    const uint64_t first    = card.allocate_mapped(1);
    const uint64_t second   = card.allocate_mapped(1);
    ASSERT_EQ(second, first + device_page());
    mark(card, second - size / 2, size, 8);
    EXPECT_TRUE(marked(card, second - size / 2, size, 8));
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

TEST_F(emu_copy, long_ones_are_right_in_many_parts)
{
    /* On no boundary. */
    constexpr uint32_t size = 16 * mebi + 4321;
    const uint64_t va       = card.allocate_mapped(size + 4096) + 7;
    guarded_buffer from(size);
    guarded_buffer to(size);
    fill_pattern(from.data(), size, 10);
    ASSERT_EQ(card.write(va, from.data(), size), completed);
    ASSERT_EQ(card.read(to.data(), va, size), completed);
    EXPECT_TRUE(has_pattern(to.data(), size, 10));
    EXPECT_TRUE(has_pattern(from.data(), size, 10));
}

} // namespace
