/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/import_windows.h"

#include <gtest/gtest.h>

#include <memory>

namespace gaudi::test {

namespace {

using base::import_windows;
using base::kept_window;

constexpr uint64_t start = 0x1001001800000000;
constexpr uint64_t grain = base::window_grain;
constexpr uint64_t size  = 100 * grain + 4096;

class import_window_sets : public ::testing::Test {
protected:
    void expect(uint64_t offset, uint64_t length, uint64_t first, uint64_t last)
    {
        const kept_window window = block.find(start + offset, length);
        ASSERT_NE(window, nullptr);
        EXPECT_EQ(window->start - start, first);
        EXPECT_EQ(window->end - start, last);
    }

    import_windows block{start, size, true, true};
};

TEST_F(import_window_sets, cover_ranges_by_whole_grains)
{
    expect(0, 1, 0, grain);
    expect(grain - 1, 1, 0, grain);
    expect(grain, grain, grain, 2 * grain);
    expect(3 * grain - 1, 2, 2 * grain, 4 * grain);
    expect(10 * grain + 1, 20 * grain, 10 * grain, 31 * grain);
}

TEST_F(import_window_sets, end_with_the_block)
{
    expect(size - 1, 1, 100 * grain, size);
    expect(99 * grain, grain + 1, 99 * grain, size);
    import_windows small(start, 4096, true, true);
    EXPECT_EQ(small.find(start, 1)->size(), 4096u);
}

TEST_F(import_window_sets, have_one_window_where_no_parts_are_exported)
{
    import_windows whole(start, size, false, true);
    const kept_window window = whole.find(start + 50 * grain, 1);
    EXPECT_EQ(window->start, start);
    EXPECT_EQ(window->end, start + size);
    EXPECT_EQ(whole.find(start, size), window);
}

TEST_F(import_window_sets, have_none_for_what_is_not_in_the_block)
{
    EXPECT_EQ(block.find(start - 1, 1), nullptr);
    EXPECT_EQ(block.find(start + size, 0), nullptr);
    EXPECT_EQ(block.find(start + size, 1), nullptr);
    EXPECT_EQ(block.find(start, size + 1), nullptr);
    EXPECT_EQ(block.find(start + 1, UINT64_MAX), nullptr);
    EXPECT_EQ(block.find(0, 1), nullptr);
}

TEST_F(import_window_sets, give_the_same_window_while_it_is_kept)
{
    const kept_window first = block.find(start, 1);
    const kept_window wide  = block.find(start, 2 * grain);
    EXPECT_NE(first, wide);
    EXPECT_EQ(block.find(start, 1), first);
    EXPECT_EQ(block.find(start + grain, 1), wide);
}

TEST_F(import_window_sets, keep_what_is_used)
{
    kept_window used = block.find(start, 1);
    kept_window gone;
    EXPECT_FALSE(block.remove_unused(*used, gone));
    base::import_window &window = *used;
    used.reset();
    EXPECT_TRUE(block.remove_unused(window, gone));
    EXPECT_EQ(gone.get(), &window);
    EXPECT_NE(block.find(start, 1), gone);
}

} // namespace

} // namespace gaudi::test
