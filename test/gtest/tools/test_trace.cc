/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_TRACE, under the launcher: what two programs did is one trace. */
#include "gtest/tools/perftest.h"

#include "common/scratch.h"
#include "gtest/emu/trace_reader.h"

namespace gaudi::test {

namespace {

class traced_programs : public perftest {
protected:
    [[nodiscard]] trace trace_of(perftest_case what) const
    {
        what.more["HLTHUNK_EMU_TRACE"] = path_;
        what.more["UCX_GAUDI_IPC_P2P"] = "y";
        expect_success(what);
        trace result = read_trace(path_);
        EXPECT_EQ(result.wrong, "");
        EXPECT_EQ(result.overlap(), "");
        return result;
    }

private:
    const scratch_directory files_;
    const std::string path_ = files_.path("trace.json");
};

TEST_F(traced_programs, of_two_processes_both_are_there)
{
    const trace written =
        trace_of({"tag_lat", "gaudi", "1048576", "gaudi_ipc"});
    std::map<std::string, unsigned> copies; /* by process */
    for (const traced_slice &slice : written.copies) {
        copies[slice.arguments.at("process")] +=
            (slice.bytes() == 1048576) ? 1 : 0;
    }
    ASSERT_EQ(copies.size(), 2u);
    for (const auto &[process, count] : copies) {
        EXPECT_GE(count, 10u) << process;
        EXPECT_THAT(process, ::testing::StartsWith("ucx_perftest "));
    }
    /* The receiver reads. */
    EXPECT_FALSE(written.copies_of("gaudi0", "PDMA0").empty());
    EXPECT_FALSE(written.copies_of("gaudi1", "PDMA0").empty());
    EXPECT_GE(written.links_of("PCIe from gaudi0").size(), 10u);
    EXPECT_GE(written.links_of("PCIe from gaudi1").size(), 10u);
}

} // namespace

} // namespace gaudi::test
