/* SPDX-License-Identifier: BSD-3-Clause */
/* What an import costs: the driver maps all of a dma-buf in pages of 4 KiB, the
 * slower the more are mapped. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/scratch.h"
#include "hlthunk_emulator/mmu.h"
#include "hlthunk_emulator/timing_figures.h"

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace gaudi::test;
using namespace std::chrono_literals;

namespace {

namespace box    = gaudi::emu;
using clock_type = std::chrono::steady_clock;

constexpr uint64_t page       = 4096;
constexpr uint64_t page_table = 512 * page;

/* Card 0 exports, card 1 imports. */
class emu_import_cost : public emu {
protected:
    struct cost {
        uint64_t pages;
        uint64_t tables;
        bool operator==(const cost &) const = default;
    };

    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        ASSERT_GE(other.fd(), 0);
        va = card.allocate_mapped(size);
    }

    /* What a call costs card 1. */
    template <typename Call>
    cost of(Call &&call)
    {
        const auto before = other.counters();
        call();
        const auto after = other.counters();
        return {after.import_pages - before.import_pages,
                after.import_tables - before.import_tables};
    }

    cost of_import(uint64_t bytes, uint64_t wanted = 0)
    {
        const int buf    = export_range(card, va, bytes);
        const cost taken = of([&] {
            EXPECT_EQ(import(other.fd(), buf, (wanted != 0) ? wanted : bytes,
                             imported),
                      0);
        });
        close(buf);
        return taken;
    }

    cost of_unmap()
    {
        return of([&] { EXPECT_EQ(unmap(other, imported), 0); });
    }

    /* What it is for pages beside none. */
    static cost alone(uint64_t bytes)
    {
        const uint64_t pages = bytes / page;
        return {pages, pages * (pages - 1) / 2 / (128 * page_table / page)};
    }

    static void expect_times(uint64_t seen, unsigned times, uint64_t one)
    {
        const auto wanted = static_cast<double>(times * one);
        EXPECT_NEAR(static_cast<double>(seen), wanted, wanted / 100);
    }

    const uint64_t size = 8 * device_page();
    raw_card other{1};
    uint64_t va       = 0;
    uint64_t imported = 0;
};

TEST_F(emu_import_cost, grows_with_the_square_of_the_size)
{
    const cost small = of_import(size / 4);
    EXPECT_EQ(small, alone(size / 4));
    EXPECT_EQ(of_unmap(), small) << "the same once more";
    const cost large = of_import(size);
    EXPECT_EQ(large.pages, 4 * small.pages);
    expect_times(large.tables, 16, small.tables);
    EXPECT_EQ(of_unmap(), large);
}

TEST_F(emu_import_cost, is_that_of_the_whole_dmabuf)
{
    EXPECT_EQ(of_import(size, page), alone(size));
    EXPECT_EQ(of_unmap(), alone(size));
}

TEST_F(emu_import_cost, grows_with_what_the_card_maps)
{
    const cost first = of_import(size / 4);
    const cost next  = of_import(size / 4);
    EXPECT_EQ(first, alone(size / 4));
    EXPECT_EQ(next.pages, first.pages);
    expect_times(next.tables, 3, first.tables);
    EXPECT_EQ(of_unmap(), next);
}

/* Where it is not for huge pages. */
TEST_F(emu_import_cost, grows_with_host_memory_that_is_mapped)
{
    constexpr uint64_t bytes = 16 * mebi;
    const cost alone_there   = of_import(size / 4);
    of_unmap();
    const std::unique_ptr<char, decltype(&std::free)> memory(
        static_cast<char *>(std::aligned_alloc(2 * mebi, bytes)), &std::free);
    const cost of_mapping = of([&] {
        const uint64_t mapped = other.map_host(memory.get(), bytes);
        EXPECT_EQ(of_import(size / 4), alone_there) << "huge pages";
        of_unmap();
        EXPECT_EQ(unmap(other, mapped), 0);
    });
    EXPECT_EQ(of_mapping.pages, 2 * alone_there.pages) << "none of the host's";
    (void)other.map_host(memory.get() + page, bytes - page);
    EXPECT_GT(of_import(size / 4).tables, alone_there.tables);
}

TEST_F(emu_import_cost, of_a_refused_one_is_none)
{
    const int buf = export_range(card, va, page);
    EXPECT_EQ(
        of([&] { EXPECT_NE(import(other.fd(), buf, 2 * page, imported), 0); }),
        cost(0, 0));
    close(buf);
}

/* --- in the timing model -------------------------------------------------- */

TEST(emu_import_figures, is_about_what_a_replica_of_the_drivers_loop_takes)
{
    constexpr struct {
        uint64_t gigabytes;
        double seconds;
    } measured[] = {{8, 0.6}, {48, 26}, {96, 131}};
    for (const auto &[gigabytes, seconds] : measured) {
        const uint64_t pages = (gigabytes << 30) / page;
        for (const auto &speed : {box::hls2_figures, box::hls3_figures}) {
            const double modelled =
                (speed.import_page * static_cast<double>(pages) +
                 speed.import_table *
                     static_cast<double>(box::tables_passed(0, pages))) /
                1e6;
            EXPECT_NEAR(modelled, seconds, seconds / 4) << gigabytes << " GB";
        }
    }
}

/* A dma-buf of this many pages takes half of the square of them, by 65536,
 * times what the child is told. */
constexpr uint64_t timed_pages = 4096;
constexpr auto timed           = 64ms;
constexpr char figures[]       = R"({"import_page": 0, "import_table": 504})";

GAUDI_CHILD(imports_and_unmaps_slowly)
{
    own_card exporter(0);
    own_card card(1);
    const uint64_t bytes = timed_pages * page;
    const int buf =
        export_range(exporter, exporter.allocate_mapped(bytes), bytes);
    auto begin        = clock_type::now();
    uint64_t imported = 0;
    GAUDI_CHILD_REQUIRE(import(card.fd(), buf, bytes, imported) == 0);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= timed);
    begin = clock_type::now();
    GAUDI_CHILD_REQUIRE(unmap(card, imported) == 0);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= timed);
    close(buf);
    return 0;
}

GAUDI_CHILD(maps_beside_an_import)
{
    own_card exporter(0);
    own_card card(1);
    const uint64_t bytes = timed_pages * page;
    const int buf =
        export_range(exporter, exporter.allocate_mapped(bytes), bytes);
    std::vector<char> memory(2 * page);
    const auto begin = clock_type::now();
    std::jthread importer([&] {
        uint64_t imported = 0;
        EXPECT_EQ(import(card.fd(), buf, bytes, imported), 0);
    });
    while (card.counters().import_pages == 0) {
        std::this_thread::yield();
    }
    (void)card.map_host(memory.data(), page);
    GAUDI_CHILD_REQUIRE(clock_type::now() - begin >= timed);
    importer.join();
    close(buf);
    return 0;
}

class emu_import_time : public ::testing::Test {
protected:
    [[nodiscard]] ::testing::AssertionResult passes(const char *child) const
    {
        return child_passes(
            child,
            {{{"HLTHUNK_EMU_TIMING", files.file("figures", figures)}}, -1});
    }

    const scratch_directory files;
};

TEST_F(emu_import_time, is_that_of_an_unmap_too)
{
    EXPECT_TRUE(passes("imports_and_unmaps_slowly"));
}

TEST_F(emu_import_time, is_waited_for_by_whoever_maps_on_the_card)
{
    EXPECT_TRUE(passes("maps_beside_an_import"));
}

} // namespace
