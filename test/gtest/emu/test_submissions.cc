/* SPDX-License-Identifier: BSD-3-Clause */
/* The submission call and the wait call themselves. */
#include "gtest/emu/fixture.h"

#include <cstring>
#include <vector>

using namespace gaudi::test;
using gaudi::shim::max_chunks_per_cs;

namespace {

class emu_submission : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        device = card.allocate_mapped(1);
        good   = card.copy_chunk(edma0, device, device + 4096, 64);
    }

    /* Expects a refusal that leaves the card working. */
    void expect_refused(const std::vector<hl_cs_chunk> &chunks, int error)
    {
        const uint64_t jobs = card.counters().jobs;
        uint64_t seq        = 0;
        EXPECT_EQ(card.submit(chunks, seq), error);
        EXPECT_EQ(card.counters().jobs, jobs);
        EXPECT_EQ(card.wait(card.start({good})), completed);
    }

    uint64_t device = 0;
    hl_cs_chunk good{};
};

TEST_F(emu_submission, has_at_most_512_chunks)
{
    std::vector<hl_cs_chunk> chunks(max_chunks_per_cs, good);
    EXPECT_EQ(card.wait(card.start(chunks)), completed);
    EXPECT_EQ(card.counters().device_to_device_bytes, 512u * 64);
    chunks.push_back(good);
    expect_refused(chunks, -EINVAL);
}

/* Queues that there are not, and those that the driver does not enable or has
 * for network ports; command buffers that are not given by address, or where
 * none can be. */
TEST_F(emu_submission, is_refused_as_by_the_driver)
{
    hl_cs_chunk bad = good;
    for (uint32_t queue : {2u, 3u, 5u, 6u, 7u, 156u, 200u, 251u, 260u, 261u,
                           1000u, UINT32_MAX}) {
        bad.queue_index = queue;
        expect_refused({good, bad}, -EINVAL);
    }
    bad = good;
    for (uint32_t flags : {0u, 2u}) {
        bad.cs_chunk_flags = flags;
        expect_refused({bad}, -EINVAL);
    }
    bad         = good;
    bad.cb_size = 0;
    expect_refused({bad}, -EFAULT);
    bad = good;
    for (uint64_t va :
         {uint64_t{0}, uint64_t{0x7fff00000000}, uint64_t{0x1001000000000000},
          uint64_t{0x1002000000000000}, uint64_t{0xffefffffffffffff},
          uint64_t{0xfff1000000000000} - 8, UINT64_MAX}) {
        bad.cb_handle = va;
        expect_refused({bad}, -EFAULT);
    }
}

/* Queues of programs that are not for copies, and command buffers where there
 * may be memory, but is none. */
TEST_F(emu_submission, is_aborted_where_the_driver_does_not_look)
{
    const wished_faults only_the_jobs("packet=abort");
    hl_cs_chunk bad = good;
    for (uint32_t queue : {16u, 44u, 155u, 252u, 259u}) {
        bad.queue_index = queue;
        EXPECT_EQ(card.wait(card.start({bad})), aborted) << queue;
    }
    bad             = good;
    const auto info = info_of(card.fd());
    for (uint64_t va :
         {info.sram_base_address, info.dram_base_address - 4096,
          uint64_t{0xfff0700000000000}, uint64_t{0xfff0f00000000000}}) {
        bad.cb_handle = va;
        EXPECT_EQ(card.wait(card.start({bad})), aborted) << std::hex << va;
    }
}

TEST_F(emu_submission, may_have_anything_where_nobody_looks)
{
    hl_cs_chunk chunk          = good;
    chunk.cs_chunk_flags       = 0xffffffff;
    chunk.collective_engine_id = 7;
    std::memset(chunk.pad, 0x55, sizeof(chunk.pad));
    EXPECT_EQ(card.wait(card.start({chunk})), completed);

    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = &good;
    in.num_chunks_execute = 1;
    in.chunks_restore     = &good;
    in.num_chunks_restore = 1;
    /* A time stamp, a time limit, no reset behind that, and no known one. */
    in.flags = 0x20 | 0x200 | 0x400 | 0x80000000;
    ASSERT_EQ(hl().hlthunk_command_submission(card.fd(), &in, &out), 0);
    EXPECT_EQ(card.wait(out.seq), completed);
    EXPECT_EQ(card.counters().device_to_device_bytes, 2u * 64)
        << "restore chunks run only where they are forced";
}

TEST_F(emu_submission, may_have_command_buffers_in_device_memory)
{
    char data[64];
    fill_pattern(data, sizeof(data), 1);
    const auto packet = gaudi::shim::make_lin_dma(
        device, card.map_host(data, sizeof(data)), sizeof(data));
    ASSERT_EQ(card.write(device + 8192, &packet, sizeof(packet)), completed);
    hl_cs_chunk chunk = good;
    chunk.queue_index = pdma0;
    chunk.cb_handle   = device + 8192;
    chunk.cb_size     = sizeof(packet);
    EXPECT_EQ(card.wait(card.start({chunk})), completed);
    EXPECT_TRUE(marked(card, device, 64, 1));
}

TEST_F(emu_submission, refuses_null_pointers)
{
    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.num_chunks_execute = 1;
    EXPECT_EQ(hl().hlthunk_command_submission(card.fd(), &in, &out), -EFAULT);
    in.chunks_execute = &good;
    EXPECT_EQ(hl().hlthunk_command_submission(card.fd(), nullptr, &out),
              -EINVAL);
    EXPECT_EQ(hl().hlthunk_command_submission(card.fd(), &in, nullptr),
              -EINVAL);
    EXPECT_EQ(hl().hlthunk_command_submission(-1, &in, &out), -EBADF);
    EXPECT_EQ(hl().hlthunk_wait_for_cs(card.fd(), 1, 0, nullptr), -EINVAL);
}

TEST_F(emu_submission, a_refused_one_has_used_up_its_number)
{
    /* The driver numbers a submission before it looks at the chunks. */
    const uint64_t before = card.start({good});
    hl_cs_chunk bad       = good;
    bad.queue_index       = 1000;
    uint64_t seq          = 0;
    EXPECT_EQ(card.submit({bad}, seq), -EINVAL);
    EXPECT_EQ(card.start({good}), before + 2);
}

TEST_F(emu_submission, one_job_may_use_several_queues)
{
    std::vector<hl_cs_chunk> chunks;
    for (uint32_t queue : {8u, 9u, 48u, 84u, 120u}) {
        chunks.push_back(card.copy_chunk(queue, device + (queue + 1) * 100000,
                                         device, 100000));
    }
    EXPECT_EQ(card.wait(card.start(chunks)), completed);
    EXPECT_EQ(card.counters().device_to_device_bytes, 500000u);
    EXPECT_EQ(card.counters().jobs, 1u);
    EXPECT_EQ(card.counters().packets, 10u);
}

/* --- waiting -------------------------------------------------------------- */

TEST_F(emu_submission, waiting_for_the_future_is_an_error)
{
    uint32_t status    = 0;
    const uint64_t seq = card.start({good});
    EXPECT_EQ(hl().hlthunk_wait_for_cs(card.fd(), seq + 1, 0, &status),
              -EINVAL);
    EXPECT_EQ(hl().hlthunk_wait_for_cs(card.fd(), UINT64_MAX, 0, &status),
              -EINVAL);
    EXPECT_EQ(card.wait(seq), completed);
}

TEST_F(emu_submission, a_failure_is_forgotten_after_64_more_jobs)
{
    const wished_faults only_the_job("packet=abort");
    hl_cs_chunk bad    = good;
    bad.cb_handle      = 0xfff0700000000000;
    const uint64_t seq = card.start({bad});
    for (int i = 0; i < 63; ++i) {
        card.start({good});
    }
    EXPECT_EQ(card.wait(seq, 0), aborted);
    card.start({good});
    EXPECT_EQ(card.wait(seq, 0), completed) << "as the driver's ring has it";
}

} // namespace
