/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_TRACE, under the launcher: what two programs did is one trace. */
#include "gtest/tools/perftest.h"

#include "common/scratch.h"
#include "gtest/emu/trace_reader.h"

#include <functional>
#include <map>

namespace gaudi::test {

namespace {

/* Two programs, each with a card: what goes from one to the other. */
class traced_programs : public perftest,
                        public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] trace trace_of(perftest_case what) const
    {
        what.more["HLTHUNK_EMU_TRACE"]    = path_;
        what.more["HLTHUNK_EMU_PORTS"]    = "y";
        what.more["UCX_GAUDI_IPC_P2P"]    = "y";
        what.more["UCX_GAUDI_IPC_ROUTES"] = GetParam();
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

std::map<std::string, size_t>
bytes_by(const std::vector<traced_slice> &slices,
         const std::function<std::string(const traced_slice &)> &what)
{
    std::map<std::string, size_t> bytes;
    for (const traced_slice &each : slices) {
        bytes[what(each)] += each.bytes();
    }
    return bytes;
}

TEST_P(traced_programs, of_two_processes_both_are_there)
{
    constexpr size_t least = 10 << 20;
    const bool over_ports  = (GetParam() == std::string("ports"));
    const trace written =
        trace_of({"tag_lat", "gaudi", "1048576", "gaudi_ipc"});
    const auto processes =
        bytes_by(over_ports ? written.ports : written.copies,
                 [](const auto &each) { return each.arguments.at("process"); });
    ASSERT_EQ(processes.size(), 2u);
    for (const auto &[process, bytes] : processes) {
        EXPECT_GE(bytes, least) << process;
        EXPECT_THAT(process, ::testing::StartsWith("ucx_perftest "));
    }
    if (over_ports) {
        const auto rows = bytes_by(written.ports, [](const auto &each) {
            return each.card.substr(0, 7) + each.row;
        });
        EXPECT_EQ(rows.size(), 6u) << "three links of two cards";
        EXPECT_TRUE(written.links_of("PCIe from gaudi0").empty());
        return;
    }
    /* The receiver reads. */
    EXPECT_FALSE(written.copies_of("gaudi0", "PDMA0").empty());
    EXPECT_FALSE(written.copies_of("gaudi1", "PDMA0").empty());
    EXPECT_GE(written.links_of("PCIe from gaudi0").size(), 10u);
    EXPECT_GE(written.links_of("PCIe from gaudi1").size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(over, traced_programs,
                         ::testing::Values("pcie", "ports"),
                         [](const auto &tested) {
                             return std::string(tested.param);
                         });

} // namespace

} // namespace gaudi::test
