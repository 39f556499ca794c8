/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of a job whose slot has another: how it ended, once, if it
 * asked for a time stamp and is among the last 256 that did
 * (hl_wait_for_fence of the vendor's driver). */
#include "gtest/emu/fixture.h"

#include <stdexcept>

using namespace gaudi::test;

namespace {

constexpr uint32_t timestamp = 0x20; /* HL_CS_FLAGS_TIMESTAMP */
constexpr unsigned slots     = gaudi::shim::max_cs_in_flight;
constexpr unsigned kept      = 256;

class emu_outcomes : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        device = card.allocate_mapped(1);
    }

    /* A job that has ended. */
    uint64_t run(uint32_t flags)
    {
        hl_cs_chunk chunk = card.copy_chunk(edma0, device, device + 64, 64);
        hlthunk_cs_in in{};
        hlthunk_cs_out out{};
        in.chunks_execute     = &chunk;
        in.num_chunks_execute = 1;
        in.flags              = flags;
        if (hl().hlthunk_command_submission(card.fd(), &in, &out) != 0) {
            throw std::runtime_error("a submission was refused");
        }
        (void)card.wait(out.seq);
        return out.seq;
    }

    uint64_t run_aborted(uint32_t flags)
    {
        const wished_faults all("job=abort");
        const uint64_t seq = run(flags);
        EXPECT_EQ(card.wait(seq), aborted);
        EXPECT_EQ(card.wait(seq), aborted) << "as long as it has its slot";
        return seq;
    }

    void run_others(unsigned count, uint32_t flags = 0)
    {
        for (unsigned i = 0; i < count; ++i) {
            run(flags);
        }
    }

    uint64_t device = 0;
};

TEST_F(emu_outcomes, of_a_job_without_a_time_stamp_are_lost_with_its_slot)
{
    const uint64_t seq = run_aborted(0);
    run_others(slots - 1);
    EXPECT_EQ(card.wait(seq), aborted);
    run_others(1);
    EXPECT_EQ(card.wait(seq), completed) << "nobody knows better";
}

TEST_F(emu_outcomes, of_a_job_with_a_time_stamp_are_told_once)
{
    const uint64_t bad  = run_aborted(timestamp);
    const uint64_t good = run(timestamp);
    run_others(4 * slots);
    EXPECT_EQ(card.wait(good), completed);
    EXPECT_EQ(card.wait(bad), aborted);
    EXPECT_EQ(card.wait(bad), completed) << "it was told";
}

TEST_F(emu_outcomes, are_kept_of_so_many_jobs_with_time_stamps)
{
    const uint64_t lost = run_aborted(timestamp);
    const uint64_t last = run_aborted(timestamp);
    run_others(kept - 1, timestamp);
    run_others(slots);
    EXPECT_EQ(card.wait(lost), completed);
    EXPECT_EQ(card.wait(last), aborted);
}

TEST_F(emu_outcomes, of_refused_submissions_count_as_completed)
{
    hl_cs_chunk chunk = chunk_at(edma0, 0, 64);
    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = &chunk;
    in.num_chunks_execute = 1;
    in.flags              = timestamp;
    const uint64_t before = run(0);
    EXPECT_NE(hl().hlthunk_command_submission(card.fd(), &in, &out), 0);
    EXPECT_EQ(card.wait(before + 1), completed);
    run_others(slots);
    EXPECT_EQ(card.wait(before + 1), completed);
}

} // namespace
