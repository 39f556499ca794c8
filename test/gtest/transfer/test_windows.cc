/* SPDX-License-Identifier: BSD-3-Clause */
/* Between two cards of the process: what one imports of the other's memory. */
#include "common/framework.h"
#include "gtest/transfer/fixture.h"

#include <cerrno>

namespace gaudi::test {

namespace {

constexpr uint64_t grain = base::window_grain;
constexpr size_t size    = 32 * grain;

class windows_between_cards : public transfers {
protected:
    /* Of another card, or of the one that there is. */
    base::card &other() { return card(has_one_card() ? 0 : 1); }

    void copy(void *dst, const void *src, size_t length)
    {
        counted_completion done;
        ASSERT_EQ(UCS_INPROGRESS,
                  engine->start(domain, dst, src, length, &done));
        wait_for(done);
        EXPECT_EQ(UCS_OK, done.status);
    }
};

TEST_F(windows_between_cards, are_all_that_is_imported)
{
    const device_buffer far(other(), size);
    const auto where =
        base::memory_map::instance().find_device(far.data(), size);
    ASSERT_TRUE(where.has_value() && (where->backing != nullptr));
    base::device_backing &block = *where->backing;
    const uint64_t at           = block.va;
    uint64_t first              = 0;
    uint64_t same               = 0;
    uint64_t next               = 0;
    ASSERT_EQ(0, block.va_on(card(0), at, 1, first));
    ASSERT_EQ(0, block.va_on(card(0), at + grain - 1, 1, same));
    EXPECT_EQ(grain - 1, same - first);
    ASSERT_EQ(0, block.va_on(card(0), at + 20 * grain, 1, next));
    EXPECT_NE(20 * grain, next - first) << "it is all one import";
    EXPECT_EQ(-EFAULT, block.va_on(card(0), at + block.size, 1, next));
}

TEST_F(windows_between_cards, cover_a_copy_across_grains)
{
    constexpr size_t length = (3 << 20) + 1;
    const device_buffer far(other(), size);
    const device_buffer near(card(0), length);
    guarded_buffer text(length);
    guarded_buffer seen(length);
    for (const uint64_t offset : {grain - 1000, 20 * grain - (1 << 20)}) {
        char *there = far.data() + offset;
        fill_pattern(text.data(), length, offset);
        write_device(near.data(), text.data(), length);
        copy(there, near.data(), length);
        read_device(seen.data(), there, length);
        EXPECT_TRUE(has_pattern(seen.data(), length, offset));

        fill_pattern(text.data(), length, offset + 1);
        write_device(there, text.data(), length);
        copy(near.data(), there, length);
        read_device(seen.data(), near.data(), length);
        EXPECT_TRUE(has_pattern(seen.data(), length, offset + 1));
    }
}

} // namespace

} // namespace gaudi::test
