/* SPDX-License-Identifier: BSD-3-Clause */
/* Who makes progress: engine threads, waiters, many threads at a time. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

using namespace gaudi::test;

namespace {

constexpr uint32_t large = 64 * mebi;

child_options with_engines(const char *engines)
{
    return {{{"HLTHUNK_EMU_ENGINES", engines}}};
}

/* Two device buffers of 64 MiB, the first with a pattern. */
struct large_copy {
    explicit large_copy(raw_card &of)
        : card(of), src(of.allocate_mapped(large)),
          dst(of.allocate_mapped(large)), data(large)
    {
        fill_pattern(data.data(), large, 1);
        card.write(src, data.data(), large);
    }

    uint64_t start()
    {
        return card.start({card.copy_chunk(edma0, dst, src, large)});
    }

    bool arrived()
    {
        std::vector<char> seen(large);
        return (card.read(seen.data(), dst, large) == completed) &&
               (seen == data);
    }

    uint64_t copied() const { return card.counters().device_to_device_bytes; }

    raw_card &card;
    const uint64_t src;
    const uint64_t dst;
    std::vector<char> data;
};

GAUDI_CHILD(finishes_a_large_job_without_polling)
{
    own_card card;
    large_copy copy(card);
    for (uint64_t i = 1; i <= 3; ++i) {
        const uint64_t seq = copy.start();
        GAUDI_CHILD_REQUIRE(
            eventually([&] { return copy.copied() == i * large; }));
        GAUDI_CHILD_REQUIRE(card.wait(seq, 0) == completed);
    }
    GAUDI_CHILD_REQUIRE(copy.arrived());
    const auto engines = static_cast<unsigned>(
        std::strtoul(std::getenv("HLTHUNK_EMU_ENGINES"), nullptr, 10));
    GAUDI_CHILD_REQUIRE(count_threads("hlthunk-emu") == engines);
    return 0;
}

TEST(emu_engines, finish_a_large_job_that_nobody_polls)
{
    for (const char *engines : {"1", "4"}) {
        EXPECT_TRUE(child_passes("finishes_a_large_job_without_polling",
                                 with_engines(engines)))
            << engines;
    }
}

GAUDI_CHILD(finishes_a_large_job_by_polling)
{
    own_card card;
    large_copy copy(card);
    const uint64_t seq = copy.start();
    GAUDI_CHILD_REQUIRE(count_threads("hlthunk-emu") == 0);
    for (int i = 0; i < 100; ++i) {
        GAUDI_CHILD_REQUIRE(copy.copied() == 0); /* there is nobody to copy */
    }
    GAUDI_CHILD_REQUIRE(card.wait(seq, 0) == busy);
    const uint64_t first = copy.copied();
    GAUDI_CHILD_REQUIRE((first > 0) && (first < large));
    while (card.wait(seq, 0) == busy) {}
    GAUDI_CHILD_REQUIRE(card.wait(seq, 0) == completed);
    GAUDI_CHILD_REQUIRE(copy.arrived());

    GAUDI_CHILD_REQUIRE(card.wait(copy.start()) == completed);
    GAUDI_CHILD_REQUIRE(copy.copied() == 2 * large);
    return 0;
}

TEST(emu_engines, without_them_polling_makes_the_progress)
{
    EXPECT_TRUE(
        child_passes("finishes_a_large_job_by_polling", with_engines("0")));
}

/* --- many threads --------------------------------------------------------- */

/* Copies through device memory and back, over and over, on memory of its own.
 */
void hammer(raw_card &owner, uint64_t device, unsigned id)
{
    constexpr uint32_t span  = 600000;
    constexpr uint32_t all[] = {pdma0, pdma0 + 1, pdma1};
    const uint32_t queue     = all[id % 3];
    std::minstd_rand random(id + 1);
    std::vector<char> source(span);
    std::vector<char> target(span);
    const uint64_t src = owner.map_host(source.data(), span);
    const uint64_t dst = owner.map_host(target.data(), span);
    /* Command buffers are the raw_card's, of one thread: make our own. */
    std::vector<gaudi::shim::lin_dma> packets(8);
    const uint64_t cb = owner.map_host(packets.data(), 8 * 24);

    auto run = [&](uint32_t on, size_t slot, uint64_t to, uint64_t from,
                   uint32_t size) {
        packets[slot] = gaudi::shim::make_lin_dma(to, from, size);
        return owner.start({chunk_at(on, cb + slot * 24, 24)});
    };
    for (unsigned round = 0; round < 60; ++round) {
        const auto size = static_cast<uint32_t>(1 + random() % span);
        fill_pattern(source.data(), size, id * 1000 + round);
        /* PDMA queues run their own copies in order. */
        run(queue, 0, device, src, size);
        run(queue, 1, device + mebi, device, size);
        const uint64_t last = run(queue, 2, dst, device + mebi, size);
        ASSERT_EQ(owner.wait(last, (round % 2) * 1000000 + 10000000),
                  completed);
        ASSERT_TRUE(has_pattern(target.data(), size, id * 1000 + round));
    }
}

TEST_F(emu, threads_share_a_card)
{
    std::vector<std::jthread> threads;
    for (unsigned id = 0; id < 8; ++id) {
        const uint64_t device = card.allocate_mapped(1);
        threads.emplace_back([this, device, id] { hammer(card, device, id); });
    }
    threads.clear(); /* when they have ended */
    EXPECT_EQ(card.counters().jobs, 8u * 60 * 3);
    EXPECT_EQ(card.counters().jobs_aborted, 0u);
}

} // namespace
