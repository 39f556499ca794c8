/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies through queues: contents, lengths, limits. */
#include "gtest/shim/fixture.h"

#include "hlthunk_shim/abi/lin_dma.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

using shim_dma = shim_test;

TEST_F(shim_dma, arrives_in_every_direction)
{
    auto to_device = make_queue(dma_direction::host_to_device);
    auto on_device = make_queue(dma_direction::device_to_device);
    auto to_host   = make_queue(dma_direction::device_to_host);
    for (const uint64_t length :
         {uint64_t{1}, uint64_t{4097}, 3 * mebi + 1, 50 * mebi + 1}) {
        host_memory source(*dev, length);
        host_memory target(*dev, length);
        device_memory memory(*dev, 2 * length);
        const uint64_t second = memory.va() + length; /* unaligned */
        fill_pattern(source.data(), length, length);
        EXPECT_EQ(copy(*to_device, memory.va(), source.va(), length), 0);
        EXPECT_EQ(copy(*on_device, second, memory.va(), length), 0);
        EXPECT_EQ(copy(*to_host, target.va(), second, length), 0);
        EXPECT_TRUE(has_pattern(target.data(), length, length)) << length;
    }
    EXPECT_EQ(counters().jobs, 12u) << "each copy is one";
    for (dma_queue *each : {to_device.get(), on_device.get(), to_host.get()}) {
        EXPECT_EQ(copy(*each, 0, 0, 0), 0);
    }
    EXPECT_EQ(counters().jobs, 12u) << "of nothing is none";
}

TEST_F(shim_dma, every_buffer_of_an_internal_engine_ends_in_barriers)
{
    /* Else a card may report the copy done before its bytes are there. */
    constexpr uint64_t length = 40 * 4096;
    device_memory memory(*dev, 2 * length);
    auto queue = make_queue(dma_direction::device_to_device);
    EXPECT_EQ(copy(*queue, memory.va() + length, memory.va(), length), 0);
    EXPECT_EQ(counters().unfenced_buffers, 0u);
    EXPECT_EQ(counters().device_to_device_bytes, length);
}

TEST_F(shim_dma, command_buffers_are_used_again)
{
    constexpr uint64_t span = 40960;
    host_memory source(*dev, span);
    host_memory target(*dev, span);
    device_memory memory(*dev, span);
    auto to_device = make_queue(dma_direction::host_to_device);
    auto to_host   = make_queue(dma_direction::device_to_host);
    for (uint64_t i = 0; i < 3 * max_cs_in_flight; ++i) {
        const uint64_t length = 1 + (i * 77773) % span;
        fill_pattern(source.data(), length, i);
        EXPECT_EQ(copy(*to_device, memory.va(), source.va(), length), 0);
        EXPECT_EQ(copy(*to_host, target.va(), memory.va(), length), 0);
        EXPECT_TRUE(has_pattern(target.data(), length, i)) << length;
    }
}

/* --- limits --------------------------------------------------------------- */

TEST_F(shim_dma, what_a_command_buffer_cannot_describe_is_emsgsize)
{
    device_memory memory(*dev, 1);
    auto queue  = make_queue(dma_direction::device_to_device);
    uint64_t id = 77;
    for (const uint64_t length :
         {40 * lin_dma_max_bytes + 1, uint64_t{1} << 60, UINT64_MAX}) {
        EXPECT_EQ(queue->submit(memory.va(), memory.va(), length, nullptr, id),
                  -EMSGSIZE)
            << length;
    }
    EXPECT_EQ(id, 77u);
    EXPECT_EQ(queue->outstanding(), 0u);
}

TEST_F(shim_dma, senseless_options_are_refused)
{
    const dma_queue_options cases[] = {
        {0, 0}, {3, 0}, {63, 0}, {1024, 0}, {64, 2}};
    for (const dma_queue_options &options : cases) {
        std::unique_ptr<dma_queue> queue;
        EXPECT_EQ(
            dev->make_queue(dma_direction::host_to_device, options, queue),
            -EINVAL);
        EXPECT_EQ(queue, nullptr);
    }
    for (unsigned depth : {1u, 2u, 512u}) {
        EXPECT_NE(make_queue(dma_direction::host_to_device, {depth, 0}),
                  nullptr);
    }
}

TEST_F(shim_dma, a_stream_does_not_wait_for_another_one)
{
    constexpr uint64_t large = 64 << 20;
    EXPECT_THAT(dev->capabilities().streams, ::testing::ElementsAre(2, 1, 1));

    host_memory host(*dev, large);
    device_memory memory(*dev, large);
    auto first        = make_queue(dma_direction::host_to_device, {64, 0});
    auto second       = make_queue(dma_direction::host_to_device, {64, 1});
    const uint64_t id = start(*first, memory.va(), host.va(), large);
    start(*second, memory.va(), host.va(), 8);
    /* One look, of which the card does not get far with the large one. */
    EXPECT_EQ(collect_one(*second), 0);
    EXPECT_EQ(first->wait(id, patience_us), 0);
    EXPECT_EQ(collect_one(*first), 0);
}

TEST_F(shim_dma, variants_are_of_the_kind_of_their_base)
{
    constexpr uint64_t gaudi3_end = 0x0202000000000000;
    for (const uint32_t id : {0x1060u, 0x1061u, 0x1062u, 0x1063u, 0x1099u}) {
        const card_kind &kind =
            find_kind(id, static_cast<hlthunk_device_name>(12));
        EXPECT_STREQ(kind.name, "Gaudi3") << std::hex << id;
        EXPECT_EQ(kind.memory_end, gaudi3_end);
        EXPECT_FALSE(is_supported(kind));
    }
    for (const uint32_t id : {0x1000u, 0x1010u, 0x1001u, 0x1011u}) {
        EXPECT_STREQ(find_kind(id, HLTHUNK_DEVICE_INVALID).name, "Gaudi");
    }
    EXPECT_STREQ(find_kind(0x1099, HLTHUNK_DEVICE_GAUDI_HL2000M).name, "Gaudi");
    for (const auto name : {HLTHUNK_DEVICE_GAUDI2, HLTHUNK_DEVICE_GAUDI2B,
                            HLTHUNK_DEVICE_GAUDI2C, HLTHUNK_DEVICE_GAUDI2D}) {
        EXPECT_STREQ(find_kind(0x1020, name).name, "Gaudi2");
        EXPECT_STREQ(find_kind(0x1099, name).name, "Gaudi2");
    }
    EXPECT_STREQ(find_kind(0x1099, HLTHUNK_DEVICE_INVALID).name, "unknown");
    EXPECT_STREQ(find_kind(0, HLTHUNK_DEVICE_GOYA).name, "unknown");
}

TEST_F(shim_dma, copies_within_the_card_take_the_first_engine_that_is_there)
{
    hlthunk_hw_ip_info info{};
    const card_kind &kind = find_kind(0x1020, HLTHUNK_DEVICE_GAUDI2);
    for (const auto &[mask, queue] : {std::pair{0xffu, 8u},
                                      {0xfeu, 12u},
                                      {0x7fu, 8u},
                                      {0x80u, 124u},
                                      {0xf0u, 84u}}) {
        info.edma_enabled_mask = mask;
        const queue_range found =
            find_queues(kind, info, dma_direction::device_to_device);
        EXPECT_EQ(found.first, queue) << std::hex << mask;
        EXPECT_EQ(found.count, 1u);
    }
}

} // namespace
