/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several threads of one process, each with interfaces of its own: UCT's rule.
 * The memory domain, the cards and the watchers of jobs are shared by all.
 */
#include "gtest/uct/fixture.h"

#include <thread>

namespace gaudi::test {

namespace {

constexpr unsigned count  = 4;
constexpr unsigned rounds = 25;
constexpr size_t size     = 200'000; /* some staging chunks */

/* Run a body on several threads at a time; it gets the number of its thread. */
template <typename Body>
void on_threads(Body &&body)
{
    std::vector<std::jthread> all;
    for (unsigned i = 0; i < count; ++i) {
        all.emplace_back([&body, i] { body(i); });
    }
}

/* Put a pattern, get it back, and look at it. */
void expect_round_trip(transport &tl, const device_buffer &device,
                       std::vector<char> &host, uint64_t seed)
{
    fill_pattern(host.data(), size, seed);
    tl.put(host.data(), size, device.remote());
    std::fill(host.begin(), host.end(), '\0');
    tl.get(host.data(), size, device.remote());
    EXPECT_TRUE(has_pattern(host.data(), size, seed));
}

using threads = uct;

} // namespace

TEST_F(threads, register_and_deregister_what_others_move)
{
    /* One buffer for all: it is found by its pointer, whoever registered it,
     * and stays mapped until the last transfer has ended. Only reads of it. */
    std::vector<char> host(size);
    fill_pattern(host.data(), size, 1);
    on_threads([&](unsigned number) {
        transport mine(md);
        const device_buffer device(md, size);
        std::vector<char> back(size);
        for (unsigned round = 0; round < rounds; ++round) {
            counted_completion put;
            auto registered =
                std::make_unique<registration>(md, host.data(), size);
            mine.start_put(host.data(), size, device.remote(), &put);
            if ((round + number) % 2 == 0) {
                registered.reset();
            }
            mine.flush();
            registered.reset();
            mine.read_device(back.data(), device.remote(), size);
            EXPECT_TRUE(has_pattern(back.data(), size, 1));
        }
    });
}

TEST_F(threads, allocate_and_ask_about_memory_at_the_same_time)
{
    const device_buffer shared(md, size);
    on_threads([&](unsigned) {
        for (unsigned round = 0; round < rounds; ++round) {
            const device_buffer own(md, size);
            EXPECT_NE(shared.data(), own.data());
            const registration again(md, own.data(), size);
            for (const device_buffer *buffer : {&shared, &own}) {
                const auto attr =
                    query_memory(md, buffer->data() + 1, size - 1);
                EXPECT_EQ(buffer->data(), attr.base_address);
                EXPECT_LE(size, attr.alloc_length);
                EXPECT_NE(UCS_MEMORY_TYPE_HOST, attr.mem_type);
            }
        }
    });
}

TEST_F(threads, open_and_close_at_the_same_time)
{
    /* The cards stay open while anybody needs them. */
    on_threads([](unsigned number) {
        std::vector<char> host(size);
        for (unsigned round = 0; round < rounds; ++round) {
            const opened_domain own;
            transport mine(own);
            const device_buffer device(own, size);
            expect_round_trip(mine, device, host, number);
        }
    });
}

} // namespace gaudi::test
