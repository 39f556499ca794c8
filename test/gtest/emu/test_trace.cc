/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_TRACE: what the engines did, for a viewer. Every process that
 * writes one is a child. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/scratch.h"
#include "util/unique_fd.h"
#include "gtest/emu/trace_reader.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

namespace shim = gaudi::shim;
namespace fs   = std::filesystem;
using ::testing::EndsWith;

std::string hex(uint64_t number)
{
    std::ostringstream text;
    text << "0x" << std::hex << number;
    return text.str();
}

/* --- children ------------------------------------------------------------- */

/* One copy of each direction, of different lengths. Tells where. */
GAUDI_CHILD(copies_every_way)
{
    used_card card;
    GAUDI_CHILD_REQUIRE(card.upload(65536) == completed);
    GAUDI_CHILD_REQUIRE(card.copy(pdma0 + 1, card.device, card.host, 100) ==
                        completed);
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.host, card.device, 4096) ==
                        completed);
    GAUDI_CHILD_REQUIRE(
        card.copy(edma0, card.device + 8192, card.device, 2048) == completed);
    tell_parent(hex(card.device));
    tell_parent(hex(card.host));
    return 0;
}

/* Fifty jobs of four packets on one queue, none waited for. */
GAUDI_CHILD(has_many_on_the_way)
{
    used_card card;
    std::vector<shim::lin_dma> packets;
    for (uint64_t at = 0; at < 65536; at += 16384) {
        packets.push_back(
            shim::make_lin_dma(card.device + at, card.host + at, 16384));
    }
    uint64_t last = 0;
    for (int i = 0; i < 50; ++i) {
        last = card.start({card.copy_chunk(pdma0, packets)});
    }
    GAUDI_CHILD_REQUIRE(card.wait(last) == completed);
    return 0;
}

/* Card 1 reads from card 0 over an import. */
GAUDI_CHILD(copies_from_card_to_card_traced)
{
    raw_card owner;
    raw_card reader(1);
    const uint64_t page   = device_page();
    const uint64_t source = owner.allocate_mapped(page);
    const int dmabuf      = export_range(owner, source, page);
    uint64_t imported     = 0;
    GAUDI_CHILD_REQUIRE(import(reader.fd(), dmabuf, page, imported) == 0);
    const uint64_t device = reader.allocate_mapped(page);
    GAUDI_CHILD_REQUIRE(reader.copy(pdma0, device, imported, 1 << 20) ==
                        completed);
    return 0;
}

GAUDI_CHILD(reads_what_is_not_mapped)
{
    used_card card;
    GAUDI_CHILD_REQUIRE(card.copy(pdma0, card.device, 0x1234000, 4096) !=
                        completed);
    return 0;
}

/* Of card 1; stays until it is told. */
GAUDI_CHILD(copies_and_stays)
{
    used_card card(1);
    GAUDI_CHILD_REQUIRE(card.upload(4096) == completed);
    tell_parent("copied");
    wait_for_parent();
    return 0;
}

/* More than is gathered at a time, on card CARD. */
GAUDI_CHILD(copies_much)
{
    used_card card(static_cast<unsigned>(std::atoi(std::getenv("CARD"))));
    for (int i = 0; i < 1000; ++i) {
        GAUDI_CHILD_REQUIRE(card.upload(64) == completed);
    }
    tell_parent("copied");
    wait_for_parent();
    return 0;
}

GAUDI_CHILD(forks_and_both_copy)
{
    used_card card;
    GAUDI_CHILD_REQUIRE(card.upload(64) == completed);
    forked_process child(
        [] { return (used_card(1).upload(4096) == completed) ? 0 : 1; });
    GAUDI_CHILD_REQUIRE(child.wait().exit_code == 0);
    GAUDI_CHILD_REQUIRE(card.upload(128) == completed);
    return 0;
}

GAUDI_CHILD(ends_with_its_card_open)
{
    static auto *card = new used_card;
    GAUDI_CHILD_REQUIRE(card->upload(64) == completed);
    return 0;
}

GAUDI_CHILD(closes_a_card_in_the_middle)
{
    used_card card;
    card.start_upload(4096);
    return 0;
}

GAUDI_CHILD(may_write_little)
{
    used_card card;
    const rlimit little{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &little);
    for (int i = 0; i < 1000; ++i) {
        GAUDI_CHILD_REQUIRE(card.upload(64) == completed);
    }
    return 0;
}

/* --- tests ---------------------------------------------------------------- */

class emu_trace : public ::testing::Test {
protected:
    [[nodiscard]] child_options options(const environment &more = {}) const
    {
        child_options result;
        result.environment = more;
        result.environment.emplace_back("HLTHUNK_EMU_TRACE", path);
        return result;
    }

    /* Run a child to its end. @return What it and others wrote. */
    trace trace_of(const char *child, const environment &more = {}) const
    {
        const child_result ended = run_child(child, options(more));
        EXPECT_EQ(ended.exit_code, 0) << ended.error;
        EXPECT_EQ(ended.error, "");
        return read();
    }

    [[nodiscard]] trace read() const
    {
        const trace result = read_trace(path);
        EXPECT_EQ(result.wrong, "");
        EXPECT_EQ(result.overlap(), "");
        EXPECT_FALSE(result.is_open) << "it is no JSON";
        return result;
    }

    const scratch_directory files;
    const std::string path = files.path("trace.json");
};

TEST_F(emu_trace, has_a_slice_for_each_copy_in_the_row_of_its_queue)
{
    child_process child("copies_every_way", options());
    const std::string device = child.read_line();
    const std::string host   = child.read_line();
    const pid_t pid          = child.pid();
    const child_result ended = child.wait();
    ASSERT_EQ(ended.exit_code, 0) << ended.error;
    const trace written = read();
    EXPECT_EQ(written.copies.size(), 4u);
    EXPECT_FALSE(written.has_half_line);

    const struct {
        const char *row;
        const char *name;
        uint64_t bytes;
        std::string source;
        std::string destination;
    } expected[] = {
        {"PDMA0", "host to gaudi0", 65536, host, device},
        {"PDMA0 stream 1", "host to gaudi0", 100, host, device},
        {"PDMA1", "gaudi0 to host", 4096, device, host},
        {"EDMA0", "gaudi0 to gaudi0", 2048, device,
         hex(std::stoull(device, nullptr, 16) + 8192)},
    };
    for (const auto &each : expected) {
        const auto found = written.copies_of("gaudi0", each.row);
        ASSERT_EQ(found.size(), 1u) << each.row;
        const traced_slice &slice = found.front();
        EXPECT_EQ(slice.card, "gaudi0 " + bus_id(0) + " of box " +
                                  std::getenv("HLTHUNK_EMU_NODE"));
        EXPECT_EQ(slice.name, each.name);
        EXPECT_EQ(slice.bytes(), each.bytes);
        EXPECT_EQ(slice.arguments.at("source"), each.source);
        EXPECT_EQ(slice.arguments.at("destination"), each.destination);
        EXPECT_EQ(slice.arguments.at("status"), "completed");
        EXPECT_THAT(slice.arguments.at("process"),
                    EndsWith(' ' + std::to_string(pid)));
        EXPECT_GE(std::stod(slice.arguments.at("waited_us")), 0);
    }
}

TEST_F(emu_trace, has_a_row_for_each_direction_of_a_link)
{
    const trace written = trace_of("copies_every_way");
    const auto in       = written.links_of("PCIe to gaudi0");
    ASSERT_EQ(in.size(), 2u);
    EXPECT_EQ(in[0].bytes(), 65536u);
    EXPECT_EQ(in[1].bytes(), 100u);
    EXPECT_EQ(in[0].arguments.at("engine"), "gaudi0 PDMA0");
    const auto out = written.links_of("PCIe from gaudi0");
    ASSERT_EQ(out.size(), 1u) << "what stays on the card needs none";
    EXPECT_EQ(out[0].bytes(), 4096u);
    const auto copy = written.copies_of("gaudi0", "PDMA1");
    EXPECT_EQ(out[0].begin, copy.at(0).begin);
    EXPECT_EQ(out[0].end, copy.at(0).end);
}

TEST_F(emu_trace, shows_a_copy_between_cards_on_both_links)
{
    const trace written = trace_of("copies_from_card_to_card_traced");
    const auto copies   = written.copies_of("gaudi1", "PDMA0");
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].name, "gaudi0 to gaudi1");
    for (const char *link : {"PCIe from gaudi0", "PCIe to gaudi1"}) {
        const auto slices = written.links_of(link);
        ASSERT_EQ(slices.size(), 1u) << link;
        EXPECT_EQ(slices[0].bytes(), uint64_t{1} << 20);
        EXPECT_TRUE(std::string(link).ends_with(slices[0].card.substr(0, 6)))
            << slices[0].card;
    }
}

TEST_F(emu_trace, slices_of_a_row_follow_each_other)
{
    const trace written = trace_of("has_many_on_the_way");
    EXPECT_EQ(written.copies_of("gaudi0", "PDMA0").size(), 200u);
}

TEST_F(emu_trace, has_the_times_of_the_model)
{
    const std::string figures = files.file("figures", R"({"to_card": 1,
        "doorbell": 10, "completion": 1000})");
    const trace written =
        trace_of("has_many_on_the_way", {{"HLTHUNK_EMU_TIMING", figures}});
    const auto copies = written.copies_of("gaudi0", "PDMA0");
    ASSERT_EQ(copies.size(), 200u);
    for (const traced_slice &copy : copies) {
        EXPECT_NEAR(static_cast<double>(copy.end - copy.begin), 16384, 10)
            << "1 GB/s";
    }
    EXPECT_GE(std::stod(copies[0].arguments.at("waited_us")), 10);
}

TEST_F(emu_trace, tells_of_jobs_that_fail)
{
    const trace written = trace_of("reads_what_is_not_mapped");
    ASSERT_EQ(written.faults.size(), 1u);
    EXPECT_EQ(written.faults[0].row, "PDMA0");
    EXPECT_EQ(written.faults[0].name, "job aborted");
    EXPECT_EQ(written.faults[0].arguments.at("why"),
              "LIN_DMA source 0x1234000 is not mapped");
}

TEST_F(emu_trace, marks_copies_of_jobs_that_fail)
{
    const child_result ended = run_child(
        "copies_every_way", options({{"HLTHUNK_EMU_FAULTS", "job#1=abort"}}));
    EXPECT_EQ(ended.exit_code, 1);
    const auto copies = read().copies_of("gaudi0", "PDMA0");
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].arguments.at("status"), "aborted");
}

TEST_F(emu_trace, has_what_was_under_way_when_its_card_was_closed)
{
    const std::string figures =
        files.file("figures", R"({"to_card": 0.00001})");
    const auto copies = trace_of("closes_a_card_in_the_middle",
                                 {{"HLTHUNK_EMU_TIMING", figures}})
                            .copies_of("gaudi0", "PDMA0");
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].arguments.at("status"), "card closed");
}

TEST_F(emu_trace, is_written_at_the_end_though_cards_are_open)
{
    EXPECT_EQ(trace_of("ends_with_its_card_open").copies.size(), 1u);
}

/* --- processes ------------------------------------------------------------ */

TEST_F(emu_trace, processes_write_one_trace_together)
{
    child_process second("copies_and_stays", options());
    ASSERT_EQ(second.read_line(), "copied");
    EXPECT_TRUE(child_passes("copies_every_way", options()));
    second.write_line("end");
    EXPECT_EQ(second.wait().exit_code, 0);
    const trace written = read();
    EXPECT_EQ(written.copies.size(), 5u);
    EXPECT_EQ(written.copies_of("gaudi1", "PDMA0").size(), 1u);
    EXPECT_EQ(written.copies_of("gaudi0", "PDMA0").size(), 1u);
}

TEST_F(emu_trace, lines_of_processes_do_not_mix)
{
    child_process first("copies_much", options({{"CARD", "0"}}));
    child_process second("copies_much", options({{"CARD", "1"}}));
    EXPECT_EQ(first.read_line(), "copied");
    EXPECT_EQ(second.read_line(), "copied");
    first.write_line("end");
    second.write_line("end");
    EXPECT_EQ(first.wait().exit_code, 0);
    EXPECT_EQ(second.wait().exit_code, 0);
    const trace written = read();
    EXPECT_EQ(written.copies_of("gaudi0", "PDMA0").size(), 1000u);
    EXPECT_EQ(written.copies_of("gaudi1", "PDMA0").size(), 1000u);
}

TEST_F(emu_trace, begins_anew_when_nobody_writes)
{
    EXPECT_EQ(trace_of("copies_every_way").copies.size(), 4u);
    EXPECT_EQ(trace_of("copies_every_way").copies.size(), 4u);
    EXPECT_EQ(
        std::distance(fs::directory_iterator(fs::path(path).parent_path()),
                      fs::directory_iterator()),
        1)
        << "nothing else is left";
}

TEST_F(emu_trace, can_be_read_when_its_process_was_killed)
{
    child_process child("copies_much", options({{"CARD", "0"}}));
    ASSERT_EQ(child.read_line(), "copied");
    child.kill(SIGKILL);
    EXPECT_EQ(child.wait().signal, SIGKILL);
    const trace written = read();
    EXPECT_GE(written.copies.size(), 500u) << "all but what was gathered";
    EXPECT_LE(written.copies.size(), 1000u);
}

TEST_F(emu_trace, goes_on_behind_the_half_line_of_a_killed_process)
{
    child_process child("copies_and_stays", options());
    ASSERT_EQ(child.read_line(), "copied");
    {
        std::ofstream half(path, std::ios::app);
        half << R"({"ph":"X","cat":"copy","pid":1,"ti)";
    }
    child.write_line("end");
    EXPECT_EQ(child.wait().exit_code, 0);
    const trace written = read();
    EXPECT_FALSE(written.has_half_line);
    EXPECT_EQ(written.copies.size(), 1u);
}

TEST_F(emu_trace, begins_where_its_first_writer_was_killed)
{
    for (const char *left : {"[", "[\n"}) {
        (void)files.file("trace.json", left);
        EXPECT_EQ(trace_of("copies_every_way").copies.size(), 4u) << left;
    }
}

/* Whoever may open the file may lock it, and as much of it as he likes. */
TEST_F(emu_trace, is_given_up_while_somebody_keeps_it_locked)
{
    (void)files.file("trace.json", "[\n]\n");
    const gaudi::util::unique_fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    for (const short type : {short{F_WRLCK}, short{F_RDLCK}}) {
        struct flock all {};
        all.l_type = type;
        ASSERT_EQ(0, fcntl(fd.get(), F_OFD_SETLK, &all));
        const child_result ended = run_child("copies_every_way", options());
        EXPECT_EQ(ended.exit_code, 0);
        EXPECT_EQ(ended.error, "hlthunk-emu: HLTHUNK_EMU_TRACE='" + path +
                                   "': another process keeps it locked; no " +
                                   ((type == F_WRLCK) ? "" : "further ") +
                                   "trace\n");
    }
}

TEST_F(emu_trace, a_forked_child_has_its_own_part)
{
    const trace written = trace_of("forks_and_both_copy");
    const auto parents  = written.copies_of("gaudi0", "PDMA0");
    const auto childs   = written.copies_of("gaudi1", "PDMA0");
    ASSERT_EQ(parents.size(), 2u);
    ASSERT_EQ(childs.size(), 1u);
    EXPECT_EQ(written.copies.size(), 3u) << "what a parent gathered is its own";
    EXPECT_NE(childs[0].arguments.at("process"),
              parents[0].arguments.at("process"));
}

/* --- settings ------------------------------------------------------------- */

TEST_F(emu_trace, a_bad_path_is_told)
{
    const struct {
        std::string path;
        const char *why;
    } bad[] = {
        {files.path("."), "Is a directory"},
        {files.path("none/trace.json"), "No such file or directory"},
        {files.file("text", "") + "/trace.json", "Not a directory"},
        {"/dev/null", "Invalid argument"},
        {files.file("mine", "[1, 2]"), "File exists"},
    };
    for (const auto &each : bad) {
        const child_result ended = run_child(
            "finds_no_cards", {{{"HLTHUNK_EMU_TRACE", each.path}}, -1});
        EXPECT_EQ(ended.exit_code, 0) << each.path;
        EXPECT_EQ(ended.error, "hlthunk-emu: HLTHUNK_EMU_TRACE='" + each.path +
                                   "' (a file to write): " + each.why +
                                   "; the emulated box has no cards\n");
    }
    std::ifstream mine(files.path("mine"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(mine), {}), "[1, 2]");
}

TEST_F(emu_trace, ends_where_no_more_can_be_written)
{
    const child_result ended = run_child("may_write_little", options());
    EXPECT_EQ(ended.exit_code, 0) << "and signal " << ended.signal;
    EXPECT_EQ(ended.error, "hlthunk-emu: HLTHUNK_EMU_TRACE='" + path +
                               "': File too large; no further trace\n");
    EXPECT_EQ(read_trace(path).wrong, "");
}

} // namespace
