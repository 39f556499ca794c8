/* SPDX-License-Identifier: BSD-3-Clause */
/* HLTHUNK_EMU_LOG_JOBS: a line for each job. Every process that writes some is
 * a child. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/scratch.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using namespace gaudi::test;

namespace {

constexpr char head[] =
    "time_ns pid card queue job direction bytes duration_ns outcome";

int64_t now()
{
    return std::chrono::nanoseconds(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

struct job_line {
    int64_t time;
    pid_t pid;
    unsigned card;
    uint32_t queue;
    uint64_t job;
    std::string direction;
    uint64_t bytes;
    int64_t duration;
    std::string outcome;
};

/* --- children ------------------------------------------------------------- */

/* One job of each direction, and one of both. */
GAUDI_CHILD(copies_every_way)
{
    used_card card;
    GAUDI_CHILD_REQUIRE(card.upload(65536) == completed);
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.host, card.device, 4096) ==
                        completed);
    GAUDI_CHILD_REQUIRE(
        card.copy(edma0, card.device + 8192, card.device, 2048) == completed);
    const uint64_t both =
        card.start({card.copy_chunk(pdma0, card.device, card.host, 100),
                    card.copy_chunk(pdma1, card.host, card.device, 200)});
    GAUDI_CHILD_REQUIRE(card.wait(both) == completed);
    return 0;
}

GAUDI_CHILD(reads_what_is_not_mapped)
{
    used_card card;
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.device, 0x1234000, 4096) !=
                        completed);
    return 0;
}

GAUDI_CHILD(closes_a_card_in_the_middle)
{
    used_card card;
    card.start_upload(4096);
    return 0;
}

/* --- tests ---------------------------------------------------------------- */

class emu_job_log : public ::testing::Test {
protected:
    [[nodiscard]] child_options options(const environment &more = {}) const
    {
        child_options result;
        result.environment = more;
        result.environment.emplace_back("HLTHUNK_EMU_LOG_JOBS", path);
        return result;
    }

    /* What is behind the head. */
    [[nodiscard]] std::vector<job_line> read() const
    {
        std::ifstream file(path);
        std::string text;
        EXPECT_TRUE(std::getline(file, text));
        EXPECT_EQ(head, text);
        std::vector<job_line> lines;
        while (std::getline(file, text)) {
            std::istringstream line(text);
            job_line one{};
            line >> one.time >> one.pid >> one.card >> one.queue >> one.job >>
                one.direction >> one.bytes >> one.duration >> one.outcome;
            EXPECT_TRUE(line && line.eof()) << text;
            lines.push_back(one);
        }
        return lines;
    }

    /* Run a child to its end. @return What it has written. */
    [[nodiscard]] std::vector<job_line>
    lines_of(const char *child, const environment &more = {}) const
    {
        EXPECT_TRUE(child_passes(child, options(more)));
        return read();
    }

    const scratch_directory files;
    const std::string path = files.path("jobs");
};

TEST_F(emu_job_log, has_a_line_for_each_job)
{
    const int64_t before = now();
    child_process child("copies_every_way", options());
    const pid_t pid          = child.pid();
    const child_result ended = child.wait();
    ASSERT_EQ(ended.exit_code, 0) << ended.error;
    const struct {
        uint32_t queue;
        const char *direction;
        uint64_t bytes;
    } expected[]     = {{pdma0, "h2d", 65536},
                        {pdma1, "d2h", 4096},
                        {edma0, "d2d", 2048},
                        {pdma0, "mixed", 300}};
    const auto lines = read();
    ASSERT_EQ(std::size(expected), lines.size());
    int64_t last = before;
    for (size_t i = 0; i < lines.size(); ++i) {
        const job_line &line = lines[i];
        EXPECT_GE(line.time, last);
        EXPECT_GE(line.duration, 0);
        last = line.time + line.duration;
        EXPECT_EQ(pid, line.pid);
        EXPECT_EQ(0u, line.card);
        EXPECT_EQ(expected[i].queue, line.queue);
        EXPECT_EQ(i + 1, line.job);
        EXPECT_EQ(expected[i].direction, line.direction);
        EXPECT_EQ(expected[i].bytes, line.bytes);
        EXPECT_EQ("completed", line.outcome);
    }
    EXPECT_LE(last, now());
}

TEST_F(emu_job_log, says_how_jobs_end)
{
    const auto faulty = lines_of("reads_what_is_not_mapped");
    ASSERT_EQ(1u, faulty.size());
    EXPECT_EQ("aborted", faulty[0].outcome);
    EXPECT_EQ(pdma1, faulty[0].queue);
    EXPECT_EQ("-", faulty[0].direction);
    EXPECT_EQ(0u, faulty[0].bytes);

    const auto closed = lines_of("closes_a_card_in_the_middle",
                                 {{"HLTHUNK_EMU_TIMING", "to_card=0.00001"}});
    ASSERT_EQ(2u, closed.size());
    EXPECT_EQ("closed", closed[1].outcome);
}

TEST_F(emu_job_log, is_given_up_where_it_cannot_be_written)
{
    const std::pair<std::string, const char *> bad[] = {
        {files.path("."), "Is a directory"},
        {"/dev/full", "No space left on device"}};
    for (const auto &[where, why] : bad) {
        const child_result ended = run_child(
            "copies_every_way", {{{"HLTHUNK_EMU_LOG_JOBS", where}}, -1});
        EXPECT_EQ(0, ended.exit_code);
        EXPECT_THAT(ended.error, ::testing::HasSubstr("HLTHUNK_EMU_LOG_JOBS='" +
                                                      where + "': " + why));
    }
}

} // namespace
