/* SPDX-License-Identifier: BSD-3-Clause */
/* What the cards say about themselves. */
#include "gtest/emu/fixture.h"

#include <cstring>
#include <string>

using namespace gaudi::test;

namespace {

TEST(emu_identity, the_box_counts_its_cards_by_kind)
{
    EXPECT_EQ(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE), 8);
    EXPECT_EQ(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_GAUDI2), 8);
    EXPECT_EQ(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_GAUDI), 0);
    EXPECT_EQ(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_GAUDI3), 0);
    EXPECT_EQ(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_INVALID), -EINVAL);
}

TEST(emu_identity, every_card_has_its_own_bus_id_and_module)
{
    for (unsigned i = 0; i < 8; ++i) {
        control_node node(i);
        char id[13] = {};
        EXPECT_EQ(
            hl().hlthunk_get_pci_bus_id_from_fd(node.fd(), id, sizeof(id)), 0);
        EXPECT_EQ(id, bus_id(i));
        EXPECT_EQ(api().hlthunk_get_device_index_from_pci_bus_id(id),
                  static_cast<int>(i));
        EXPECT_EQ(info_of(node.fd()).module_id, i);
        const int fd = api().hlthunk_open_by_module_id(i);
        EXPECT_EQ(info_of(fd).module_id, i);
        EXPECT_EQ(hl().hlthunk_close(fd), 0);
    }
    EXPECT_EQ(api().hlthunk_open_by_module_id(8), -1);
}

TEST(emu_identity, a_buffer_too_short_for_the_bus_id_is_not_overrun)
{
    control_node node(0);
    char id[17];

    for (int length : {0, 1, 7, 11, 12}) {
        std::memset(id, '#', sizeof(id));
        EXPECT_EQ(hl().hlthunk_get_pci_bus_id_from_fd(node.fd(), id, length),
                  0);
        const auto size = static_cast<size_t>(length);
        EXPECT_EQ(std::string(id, size), bus_id(0).substr(0, size));
        EXPECT_TRUE(all_bytes_are(id + size, sizeof(id) - size, '#'));
    }
    std::memset(id, '#', sizeof(id));
    EXPECT_EQ(hl().hlthunk_get_pci_bus_id_from_fd(node.fd(), id, 13), 0);
    EXPECT_EQ(std::string(id), bus_id(0)) << "13 bytes hold the terminator";
    EXPECT_EQ(id[13], '#');
}

TEST_F(emu, describes_a_gaudi2)
{
    const auto info = info_of(card.fd());
    EXPECT_EQ(info.device_id, 0x1020u);
    EXPECT_EQ(info.dram_enabled, 1);
    EXPECT_EQ(info.dram_size + info.reserved_dram_size, uint64_t{96} << 30);
    EXPECT_EQ(info.reserved_dram_size, info.dram_page_size);
    EXPECT_EQ(info.device_mem_alloc_default_page_size, info.dram_page_size);
    EXPECT_EQ(info.dram_base_address, 0x1001001800000000u);
    EXPECT_EQ(info.edma_enabled_mask, 0xffu);
    EXPECT_EQ(info.module_id, 0u);
    EXPECT_EQ(hl().hlthunk_get_device_name_from_fd(card.fd()),
              HLTHUNK_DEVICE_GAUDI2);
    EXPECT_EQ(api().hlthunk_get_device_id_from_fd(card.fd()), 0x1020u);
    EXPECT_EQ(hl().hlthunk_get_device_status_info(card.fd()), 0);
}

TEST_F(emu, the_same_address_is_other_memory_on_another_card)
{
    own_card second(1);
    const uint64_t here  = card.allocate_mapped(1);
    const uint64_t there = second.allocate_mapped(1);
    ASSERT_EQ(here, there);

    mark(card, here, 4096, 1);
    mark(second, there, 4096, 2);
    EXPECT_TRUE(marked(card, here, 4096, 1));
    EXPECT_TRUE(marked(second, there, 4096, 2));
}

} // namespace
