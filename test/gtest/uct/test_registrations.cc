/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of device memory, advice, and handles that are none. */
#include "common/uct_config.h"
#include "gtest/uct/fixture.h"

#include <memory>

#include <sys/mman.h>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

using registrations = uct;

class advised_memory : private with_mapped_host_memory, public uct {};

} // namespace

/* Without a setting an allocation of more than a tenth of the card is not
 * registered as a whole. */
TEST_F(registrations, whole_allocations_can_be_forced)
{
    const size_t large = device_bytes() / 8;
    {
        device_buffer device(md, large);
        EXPECT_EQ(7u, query_memory(md, device.data() + 5, 7).alloc_length);
    }
    reopen_md({{"REG_WHOLE_ALLOC", "on"}});
    device_buffer device(md, large);
    EXPECT_EQ(large, query_memory(md, device.data() + 5, 7).alloc_length);
}

TEST_F(registrations, an_idle_one_does_not_keep_memory_from_being_freed)
{
    GAUDI_NEEDS(own_pool);
    {
        device_buffer device(md, size);
        registration memh(md, device.data(), 100);
    }
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

/* UCP's ucp_request_cancel lets a program free what a card still writes. */
TEST_F(registrations, memory_freed_while_a_card_copies_is_nobody_elses_yet)
{
    GAUDI_NEEDS(own_pool);
    guarded_buffer host(size);
    auto freed           = std::make_unique<device_buffer>(md, size);
    const uint64_t start = freed->remote();
    counted_completion done;
    engine_hooks::pause(true);
    {
        registration memh(md, freed->data(), size);
        tl->start_put(host.data(), size, start, &done);
    }
    freed.reset();
    {
        device_buffer next(md, size);
        EXPECT_TRUE((next.remote() + size <= start) ||
                    (next.remote() >= start + size));
    }
    uct_mem_h memh;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              register_memory(md, reinterpret_cast<void *>(start), 1, memh,
                              UCT_MD_MEM_FLAG_HIDE_ERRORS));
    EXPECT_EQ(1u, engine_hooks::counters().allocations);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(UCS_OK, done.status);
    EXPECT_EQ(0u, engine_hooks::counters().allocations) << "given back";
}

TEST_F(registrations, between_cards_memory_of_both_stays_until_they_are_done)
{
    GAUDI_NEEDS(own_pool);
    auto from = std::make_unique<device_buffer>(md, size);
    auto to   = std::make_unique<device_buffer>(md, size);
    counted_completion done;
    engine_hooks::pause(true);
    tl->start_get(to->data(), size, from->remote(), &done);
    const uint64_t freed[] = {from->remote(), to->remote()};
    from.reset();
    to.reset();
    for (device_buffer next(md, size); const uint64_t start : freed) {
        EXPECT_NE(start, next.remote());
    }
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(UCS_OK, done.status);
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

TEST_F(registrations, reach_over_the_end_as_far_as_ucp_rounds_up)
{
    GAUDI_NEEDS(own_pool);
    constexpr size_t rounding = UCT_API == UCT_VERSION(1, 16) ? 4096 : 16;
    device_buffer device(md, 3 * rounding + 1);
    uct_mem_h memh;
    ASSERT_EQ(UCS_OK, register_memory(md, device.data(), 4 * rounding, memh));
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
    ASSERT_EQ(UCS_OK, register_memory(md, device.data() + 3 * rounding,
                                      rounding, memh));
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));

    for (const size_t length :
         {4 * rounding + 16, 3 * rounding + 8, 8 * rounding}) {
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  register_memory(md, device.data(), length, memh));
        EXPECT_THAT(take_logs(),
                    ::testing::ElementsAre(::testing::HasSubstr(
                        "register " + std::to_string(length) + " bytes")));
    }
}

TEST_F(advised_memory, is_mapped_before_it_is_used)
{
    guarded_buffer host(128 << 10);
    const uint64_t before = engine_hooks::counters().host_maps;
    registration memh(md, host.data(), host.size());
    EXPECT_EQ(UCS_OK, uct_md_mem_advise(md, memh.memh, host.data() + 7, 32768,
                                        UCT_MADV_NORMAL));
    EXPECT_EQ(before, engine_hooks::counters().host_maps);
    for (unsigned round = 0; round < 2; ++round) {
        EXPECT_EQ(UCS_OK, uct_md_mem_advise(md, memh.memh, host.data() + 7,
                                            32768, UCT_MADV_WILLNEED));
        EXPECT_EQ(before + 1, engine_hooks::counters().host_maps);
    }
}

TEST_F(registrations, wrong_advice_is_refused)
{
    guarded_buffer host(4096);
    device_buffer device(md, size);
    registration memh(md, host.data(), 4096);
    auto advise = [&](uct_mem_h handle, void *address, size_t length,
                      unsigned advice) {
        return uct_md_mem_advise(md, handle, address, length,
                                 static_cast<uct_mem_advice_t>(advice));
    };
    const unsigned need = UCT_MADV_WILLNEED;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(memh.memh, host.data(), 0, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(memh.memh, nullptr, 1, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(memh.memh, host.data(), 4, 77));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              advise(memh.memh, host.data() + 4096, 4096, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              advise(memh.memh, host.data() - 4096, 8192, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              advise(memh.memh, host.data(), SIZE_MAX, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              advise(device.memh, device.data() + size, 1, need));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(memh.memh, device.data(), 1, need));
}

TEST_F(registrations, undoing_one_twice_is_refused)
{
    guarded_buffer host(4096);
    device_buffer device(md, size);
    for (void *address : {static_cast<void *>(host.data()), device.address}) {
        uct_mem_h memh;
        ASSERT_EQ(UCS_OK, register_memory(md, address, 100, memh));
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_md_mem_dereg(md, memh));
        EXPECT_EQ(1u, take_logs().size());
    }
}

TEST_F(registrations, one_is_not_freed_and_an_allocation_not_deregistered)
{
    guarded_buffer host(4096);
    device_buffer device(md, size);
    registration memh(md, host.data(), 4096);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_md_mem_dereg(md, device.memh));
    EXPECT_EQ(1u, take_logs().size());
    uct_allocated_memory_t memory{};
    memory.address = host.data();
    memory.method  = UCT_ALLOC_METHOD_MD;
    memory.md      = md;
    memory.memh    = memh.memh;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_mem_free(&memory));
    EXPECT_EQ(1u, take_logs().size());
}

TEST_F(registrations, ranges_out_of_this_world_are_refused)
{
    GAUDI_NEEDS(own_pool);
    device_buffer device(md, size);
    char byte;
    const std::pair<void *, size_t> ranges[] = {
        {&byte, SIZE_MAX},
        {&byte, size_t{1} << 56},
        {device.address, SIZE_MAX},
        {reinterpret_cast<void *>(UINTPTR_MAX), 2}};
    for (const auto &[address, length] : ranges) {
        uct_mem_h memh;
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  register_memory(md, address, length, memh,
                                  UCT_MD_MEM_FLAG_HIDE_ERRORS));
    }
    /* Still Gaudi memory, but nothing is known of it. */
    const auto attr = query_memory(md, device.address, SIZE_MAX);
    EXPECT_EQ(SIZE_MAX, attr.alloc_length);
}

} // namespace gaudi::test
