/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory whose pages are no neighbours. */
#include "gtest/emu/fixture.h"

using namespace gaudi::test;

namespace {

class emu_fragments : public emu {
protected:
    /* Five single pages, of which three go and come back as one piece. */
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        uint64_t handles[5];
        for (uint64_t &handle : handles) {
            handle = card.allocate(1);
        }
        kept[0] = card.map(handles[1]);
        kept[1] = card.map(handles[3]);
        for (int i : {0, 2, 4}) {
            ASSERT_EQ(hl().hlthunk_device_memory_free(card.fd(), handles[i]),
                      0);
        }
        big = card.allocate_mapped(3 * device_page());
    }

    uint64_t big     = 0;
    uint64_t kept[2] = {};
};

TEST_F(emu_fragments, the_pages_between_stay_untouched)
{
    constexpr uint32_t window = 65536;
    for (uint64_t page : kept) {
        mark(card, page, window, 100);
        mark(card, page + device_page() - window, window, 101);
    }
    mark(card, big + device_page() - window, 2 * window, 1);
    mark(card, big + 2 * device_page() - window, 2 * window, 2);
    for (uint64_t page : kept) {
        EXPECT_TRUE(marked(card, page, window, 100));
        EXPECT_TRUE(marked(card, page + device_page() - window, window, 101));
    }
}

TEST_F(emu_fragments, device_to_device_crosses_edges_of_both)
{
    constexpr uint32_t size = 1 << 20;
    const uint64_t src      = big + device_page() - size / 3;
    const uint64_t dst      = big + 2 * device_page() - size / 2;
    mark(card, src, size, 4);
    EXPECT_EQ(card.copy(edma0, dst, src, size), completed);
    EXPECT_TRUE(marked(card, dst, size, 4));
    EXPECT_TRUE(marked(card, src, size, 4));
    EXPECT_EQ(card.counters().device_to_device_bytes, size);
}

TEST_F(emu_fragments, the_end_of_the_mapping_is_an_end)
{
    const uint64_t end = big + 3 * device_page();
    char data[128];
    const uint64_t host = card.map_host(data, sizeof(data));
    EXPECT_EQ(card.copy(pdma0, end - 64, host, 64), completed);
    const wished_faults only_the_job("packet=abort");
    EXPECT_EQ(card.copy(pdma0, end - 64, host, 65), aborted);
    EXPECT_EQ(card.copy(pdma0, end, host, 1), aborted);
}

} // namespace
