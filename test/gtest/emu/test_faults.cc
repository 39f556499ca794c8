/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets that no engine can make sense of. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

constexpr uint64_t unmapped = 0x1001900000000000; /* in the DRAM range */
constexpr uint64_t nowhere  = 0xfff0700000000000; /* in the host range */

/* What the faulty jobs work on. */
struct bench {
    explicit bench(raw_card &of)
        : card(of), device(of.allocate_mapped(1)),
          host(of.map_host(data, sizeof(data)))
    {}

    hl_cs_chunk packet(uint32_t queue, const lin_dma &copy) const
    {
        return card.copy_chunk(queue, {copy});
    }

    raw_card &card;
    char data[8192] = {};
    const uint64_t device;
    const uint64_t host;
};

struct fault {
    const char *name;
    hl_cs_chunk (*build)(bench &);
    const char *explanation; /* in the log line */
};

lin_dma with_ctl(lin_dma packet, uint32_t ctl)
{
    packet.ctl = ctl;
    return packet;
}

const fault faults[] = {
    {"unknown_opcode",
     [](bench &b) {
         return b.packet(pdma0, with_ctl(make_lin_dma(b.device, b.host, 8),
                                         0x11u << packet_opcode_shift));
     },
     "packet opcode 0x11"},
    {"unknown_control_bits",
     [](bench &b) {
         return b.packet(pdma0,
                         with_ctl(make_lin_dma(b.device, b.host, 8),
                                  (packet_lin_dma << packet_opcode_shift) |
                                      lin_dma_memset));
     },
     "control bits 0x10"},
    {"copy_of_nothing",
     [](bench &b) {
         return b.packet(pdma0, make_lin_dma(b.device, b.host, 0));
     },
     "LIN_DMA of 0 bytes"},
    {"packet_overruns_the_buffer",
     [](bench &b) {
         const lin_dma copy = make_lin_dma(b.device, b.host, 8);
         return b.card.raw_chunk(pdma0, &copy, sizeof(copy) - 8);
     },
     "overruns the buffer"},
    {"header_overruns_the_buffer",
     [](bench &b) {
         const lin_dma copy = make_lin_dma(b.device, b.host, 8);
         return b.card.raw_chunk(pdma0, &copy, 4);
     },
     "overruns the buffer"},
    {"unmapped_source",
     [](bench &b) {
         return b.packet(pdma0, make_lin_dma(b.device, nowhere, 8));
     },
     "source 0xfff0700000000000 is not mapped"},
    {"unmapped_destination",
     [](bench &b) {
         return b.packet(pdma0, make_lin_dma(unmapped, b.host, 8));
     },
     "destination 0x1001900000000000 is not mapped"},
    {"source_ends_too_early",
     [](bench &b) {
         return b.packet(pdma0, make_lin_dma(b.device, b.host, 8193));
     },
     "is not mapped"},
    {"host_pointer_instead_of_an_address",
     [](bench &b) {
         return b.packet(
             pdma0,
             make_lin_dma(b.device, reinterpret_cast<uint64_t>(b.data), 8));
     },
     "is not mapped"},
    {"unmapped_command_buffer",
     [](bench &) { return chunk_at(pdma0, nowhere, 24); },
     "the command buffer is not mapped"},
    {"unmapped_lower_command_buffer",
     [](bench &b) {
         const cp_dma upper = make_cp_dma(nowhere, 24);
         return b.card.raw_chunk(edma0, &upper, sizeof(upper));
     },
     "lower command buffer 0xfff0700000000000"},
    {"copy_in_the_upper_buffer_of_an_internal_engine",
     [](bench &b) {
         const lin_dma copy = make_lin_dma(b.device, b.device + 64, 8);
         return b.card.raw_chunk(edma0, &copy, sizeof(copy));
     },
     "LIN_DMA in the upper command buffer"},
    {"host_source_of_an_internal_engine",
     [](bench &b) {
         return b.packet(edma0, make_lin_dma(b.device, b.host, 8));
     },
     "cannot reach host memory"},
    {"host_destination_of_an_internal_engine",
     [](bench &b) {
         return b.packet(edma0, make_lin_dma(b.host, b.device, 8));
     },
     "cannot reach host memory"},
    {"cp_dma_on_an_external_queue",
     [](bench &b) {
         const cp_dma upper = make_cp_dma(b.host, 24);
         return b.card.raw_chunk(pdma0, &upper, sizeof(upper));
     },
     "CP_DMA outside the upper command buffer"},
    {"cp_dma_in_a_lower_buffer",
     [](bench &b) {
         const cp_dma lower = make_cp_dma(b.host, 24);
         const cp_dma upper = make_cp_dma(
             b.card.add_command_buffer(&lower, sizeof(lower)), sizeof(lower));
         return b.card.raw_chunk(edma0, &upper, sizeof(upper));
     },
     "CP_DMA outside the upper command buffer"},
    {"copy_on_a_queue_without_a_dma_engine",
     [](bench &b) {
         const lin_dma copy = make_lin_dma(b.device, b.device + 64, 8);
         return b.card.raw_chunk(20, &copy, sizeof(copy));
     },
     "queue 20 has no DMA engine"},
};

class emu_fault : public emu {};

TEST_F(emu_fault, resets_the_card)
{
    bench b(card);
    const hl_cs_chunk chunk = faults[0].build(b);
    const hl_cs_chunk good =
        b.packet(pdma0, make_lin_dma(b.device + 4096, b.host, 8));
    EXPECT_EQ(card.wait(card.start({good})), completed);

    card.pause(true);
    const uint64_t seq    = card.start({chunk});
    const uint64_t behind = card.start({good});
    card.pause(false);
    (void)card.wait(seq); /* aborted, unless a thread was faster */
    EXPECT_EQ(card.wait(seq), in_reset(seq));
    EXPECT_EQ(card.wait(behind), in_reset(behind));
    EXPECT_EQ(card.wait(behind - 2, 0), in_reset(behind - 2))
        << "of what ended before nothing is said any more, too";
    EXPECT_EQ(card.counters().jobs_aborted, 2u);
    uint64_t refused = 0;
    EXPECT_EQ(card.submit({good}, refused), -EBUSY);
    EXPECT_EQ(hl().hlthunk_get_device_status_info(card.fd()), device_in_reset);
}

TEST_F(emu_fault, aborts_the_job_and_nothing_else_if_wished)
{
    const wished_faults only_the_job("packet=abort");
    bench b(card);
    for (const fault &each : faults) {
        SCOPED_TRACE(each.name);
        std::memset(b.data, '#', sizeof(b.data));
        const hl_cs_chunk chunk = each.build(b);
        const uint64_t before   = card.counters().jobs_aborted;
        const uint64_t seq      = card.start({chunk});
        EXPECT_EQ(card.wait(seq), aborted);
        EXPECT_EQ(card.wait(seq, 0), aborted) << "it stays so";
        EXPECT_EQ(card.counters().jobs_aborted, before + 1);
        EXPECT_TRUE(all_bytes_are(b.data, sizeof(b.data), '#'));
    }
    fill_pattern(b.data, 64, 1);
    EXPECT_EQ(card.copy(pdma0, b.device, b.host, 64), completed);
    EXPECT_EQ(card.copy(edma0, b.device + 64, b.device, 64), completed);
    EXPECT_TRUE(marked(card, b.device + 64, 64, 1)) << "the queues go on";
}

GAUDI_CHILD(provokes_all_faults)
{
    const wished_faults only_the_jobs("packet=abort");
    own_card card;
    bench b(card);
    for (const fault &each : faults) {
        GAUDI_CHILD_REQUIRE(card.wait(card.start({each.build(b)})) == aborted);
    }
    return 0;
}

TEST(emu_fault_log, says_where_and_why)
{
    const child_result result =
        run_child("provokes_all_faults", {{{"HLTHUNK_EMU_LOG", "1"}}});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    for (const fault &each : faults) {
        EXPECT_THAT(result.error, ::testing::HasSubstr(each.explanation));
    }
}

TEST_F(emu_fault, aborts_the_whole_job_but_not_the_one_behind_it)
{
    const wished_faults only_the_job("packet=abort");
    bench b(card);
    fill_pattern(b.data, 64, 2);
    card.pause(true);
    /* One job on two queues, of which one has a good part. */
    const uint64_t bad = card.start(
        {b.packet(pdma0, make_lin_dma(unmapped, b.host, 8)),
         b.packet(edma0, make_lin_dma(b.device + 4096, b.device, 8))});
    const uint64_t good =
        card.start({b.packet(pdma0, make_lin_dma(b.device, b.host, 64))});
    card.pause(false);
    EXPECT_EQ(card.wait(bad), aborted);
    EXPECT_EQ(card.wait(good), completed);
    EXPECT_EQ(card.counters().jobs_aborted, 1u) << "a job counts once";

    EXPECT_TRUE(marked(card, b.device, 64, 2));
}

TEST_F(emu_fault, stops_the_packets_behind_it)
{
    const wished_faults only_the_job("packet=abort");
    bench b(card);
    fill_pattern(b.data, 192, 3);
    const std::vector<lin_dma> packets = {
        make_lin_dma(b.device, b.host, 64),
        make_lin_dma(b.device + 64, nowhere, 64),
        make_lin_dma(b.device + 128, b.host + 128, 64)};
    EXPECT_EQ(card.wait(card.start({card.copy_chunk(pdma0, packets)})),
              aborted);
    char seen[192] = {};
    EXPECT_EQ(card.read(seen, b.device, sizeof(seen)), completed);
    EXPECT_TRUE(has_pattern(seen, 64, 3)) << "what was before it has run";
    EXPECT_TRUE(all_bytes_are(seen + 64, 128, 0));
}

} // namespace
