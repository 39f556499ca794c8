/* SPDX-License-Identifier: BSD-3-Clause */
/* The kinds of cards, and copies that no queue makes. Every kind but the first
 * is a child's. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <cstdlib>
#include <string>

using namespace gaudi::test;

namespace {

child_options of_kind(const std::string &asic)
{
    /* That of the kind, whatever all tests are to have. */
    return {{{"HLTHUNK_EMU_ASIC", asic},
             {"HLTHUNK_EMU_DRAM_PAGE", (asic == "gaudi3") ? "32M" : "48M"}}};
}

/* Wait for a copy that no queue makes. */
outcome copy_within(const raw_card &card, uint64_t dst, uint64_t src,
                    uint64_t size, unsigned engine)
{
    uint64_t seq = 0;
    const int ret =
        api().hlthunk_emu_copy(card.fd(), dst, src, size, engine, &seq);
    return (ret == 0) ? card.wait(seq) : outcome{ret, 0};
}

GAUDI_CHILD(finds_a_variant_of_gaudi2)
{
    const std::string name = std::getenv("HLTHUNK_EMU_ASIC");
    const bool is_addin    = name.starts_with("hl288");
    const auto expected    = (name == "gaudi2b")   ? HLTHUNK_DEVICE_GAUDI2B
                             : (name == "gaudi2c") ? HLTHUNK_DEVICE_GAUDI2C
                             : (name == "gaudi2d") ? HLTHUNK_DEVICE_GAUDI2D
                                                   : HLTHUNK_DEVICE_INVALID;
    GAUDI_CHILD_REQUIRE((expected == HLTHUNK_DEVICE_INVALID) ||
                        (hl().hlthunk_get_device_count(expected) == 8));
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_GAUDI2) ==
                        0);
    own_card card;
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_name_from_fd(card.fd()) ==
                        expected);
    const auto info = info_of(card.fd());
    GAUDI_CHILD_REQUIRE(info.device_id == (is_addin ? 0x1021 : 0x1020));
    GAUDI_CHILD_REQUIRE(info.revision_id ==
                        ((name == "hl288") ? 1 : name.back() - 'a' + 1));
    return 0;
}

GAUDI_CHILD(has_a_gaudi3)
{
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_count(HLTHUNK_DEVICE_GAUDI3) ==
                        8);
    own_card card;
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_name_from_fd(card.fd()) ==
                        HLTHUNK_DEVICE_GAUDI3);
    const auto info = info_of(card.fd());
    GAUDI_CHILD_REQUIRE(info.device_id == 0x1060);
    GAUDI_CHILD_REQUIRE(info.dram_page_size == 32 * mebi);
    GAUDI_CHILD_REQUIRE(info.device_mem_alloc_default_page_size == 32 * mebi);
    GAUDI_CHILD_REQUIRE(info.dram_base_address > 0x0201000000000000);
    GAUDI_CHILD_REQUIRE(info.dram_base_address < 0x0202000000000000);

    const uint64_t device = card.allocate_mapped(1);
    GAUDI_CHILD_REQUIRE(device >= info.dram_base_address);
    GAUDI_CHILD_REQUIRE(device < 0x0202000000000000);
    char data[64];
    const uint64_t host = card.map_host(data, sizeof(data));
    GAUDI_CHILD_REQUIRE(host >= 0xff70000000000000);
    GAUDI_CHILD_REQUIRE(host < 0xff70800000000000);

    /* The driver has but its own queue there. */
    for (const uint32_t queue : {pdma0, pdma1, edma0, 24u, 259u}) {
        uint64_t seq = 0;
        GAUDI_CHILD_REQUIRE(
            card.submit({card.copy_chunk(queue, device, host, sizeof(data))},
                        seq) == -EINVAL);
    }
    GAUDI_CHILD_REQUIRE(card.counters().jobs == 0);

    /* Which sizes of pages there are, it says by a bit mask. */
    for (const auto &[size, good] : {std::pair{uint64_t{0}, true},
                                     {32 * mebi, true},
                                     {uint64_t{4096}, false},
                                     {33 * mebi, false},
                                     {48 * mebi, false}}) {
        GAUDI_CHILD_REQUIRE(
            (hl().hlthunk_device_memory_alloc(card.fd(), 1, size, false,
                                              true) != 0) == good);
    }
    return 0;
}

/* Through host memory, device memory, and host memory again. */
GAUDI_CHILD(copies_without_queues)
{
    own_card card;
    constexpr uint64_t size = 3 * mebi + 5;
    const guarded_buffer source(size);
    const guarded_buffer target(size);
    fill_pattern(source.data(), size, 7);
    const uint64_t from  = card.map_host(source.data(), size);
    const uint64_t to    = card.map_host(target.data(), size);
    const uint64_t first = card.allocate_mapped(2 * size);
    GAUDI_CHILD_REQUIRE(copy_within(card, first, from, size, 0) == completed);
    GAUDI_CHILD_REQUIRE(copy_within(card, first + size, first, size, 1) ==
                        completed);
    GAUDI_CHILD_REQUIRE(copy_within(card, to, first + size, size, 7) ==
                        completed);
    GAUDI_CHILD_REQUIRE(has_pattern(target.data(), size, 7));
    return 0;
}

/* By the mask that the test gives; of one missing engine the last one takes the
 * place. */
GAUDI_CHILD(copies_on_engines_that_are_there)
{
    const std::string given = std::getenv("HLTHUNK_EMU_EDMA");
    const uint32_t mask     = (given == "0xfe")   ? 0x7f
                              : (given == "0x7f") ? 0x7f
                              : (given == "0xfc") ? 0xfc
                                                  : 0;
    own_card card;
    const auto info = info_of(card.fd());
    GAUDI_CHILD_REQUIRE(info.edma_enabled_mask == mask);
    const uint64_t va = card.allocate_mapped(1);
    for (size_t i = 0; i < gaudi::shim::gaudi2_queue_edma.size(); ++i) {
        for (uint32_t stream = 0; stream < 4; ++stream) {
            const auto chunk = card.copy_chunk(
                gaudi::shim::gaudi2_queue_edma[i] + stream, va, va + 64, 64);
            uint64_t seq  = 0;
            const int ret = card.submit({chunk}, seq);
            GAUDI_CHILD_REQUIRE(ret ==
                                ((((mask >> i) & 1) != 0) ? 0 : -EINVAL));
        }
    }
    return 0;
}

TEST(emu_asic, queues_of_missing_engines_are_refused)
{
    for (const char *mask : {"0xfe", "0x7f", "0xfc", "0"}) {
        EXPECT_TRUE(child_passes("copies_on_engines_that_are_there",
                                 {{{"HLTHUNK_EMU_EDMA", mask}}}))
            << mask;
    }
}

TEST(emu_asic, variants_of_gaudi2_are_told_by_name_and_revision)
{
    for (const char *asic : {"gaudi2b", "gaudi2c", "gaudi2d", "gaudi2e",
                             "hl288", "hl288d", "hl288e"}) {
        const child_result result =
            run_child("finds_a_variant_of_gaudi2", of_kind(asic));
        EXPECT_EQ(result.exit_code, 0) << asic << ": " << result.error;
        EXPECT_EQ(result.error, "");
    }
}

TEST(emu_asic, gaudi3_has_addresses_and_pages_of_its_own_and_no_queues)
{
    EXPECT_TRUE(child_passes("has_a_gaudi3", of_kind("gaudi3")));
}

TEST(emu_asic, copies_need_no_queue)
{
    for (const char *asic : {"gaudi2", "gaudi3"}) {
        EXPECT_TRUE(child_passes("copies_without_queues", of_kind(asic)))
            << asic;
    }
}

TEST_F(emu, a_bad_copy_without_a_queue_fails_as_one_with)
{
    const wished_faults only_the_jobs("packet=abort");
    const uint64_t device = card.allocate_mapped(1);
    EXPECT_EQ(copy_within(card, device, 0x1234, 64, 0), aborted);
    EXPECT_EQ(copy_within(card, 0x1234, device, 64, 0), aborted);
    EXPECT_EQ(copy_within(card, device, device, 0, 0), completed);

    uint64_t seq = 0;
    EXPECT_EQ(api().hlthunk_emu_copy(card.fd(), device, device, 64, 8, &seq),
              -EINVAL);
    EXPECT_EQ(api().hlthunk_emu_copy(card.fd(), device, device, 64, 0, nullptr),
              -EINVAL);
    EXPECT_EQ(api().hlthunk_emu_copy(0, device, device, 64, 0, &seq), -EBADF);
}

} // namespace
