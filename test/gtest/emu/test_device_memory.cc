/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory: allocation, mapping, the addresses. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <csignal>

#include <sys/resource.h>

using namespace gaudi::test;

namespace {

constexpr uint64_t va_start = 0x1001001800000000; /* of a 96 GiB card */
constexpr uint64_t va_end   = 0x1002000000000000;

class emu_memory : public emu {
protected:
    uint64_t allocate(uint64_t size)
    {
        errno = 0;
        return hl().hlthunk_device_memory_alloc(card.fd(), size, 0, false,
                                                true);
    }

    uint64_t map(uint64_t handle, uint64_t hint = 0)
    {
        errno = 0;
        return hl().hlthunk_device_memory_map(card.fd(), handle, hint);
    }

    int unmap(uint64_t va) { return hl().hlthunk_memory_unmap(card.fd(), va); }

    int free_handle(uint64_t handle)
    {
        return hl().hlthunk_device_memory_free(card.fd(), handle);
    }

    hlthunk_dram_usage_info usage()
    {
        hlthunk_dram_usage_info result{};
        EXPECT_EQ(hl().hlthunk_get_dram_usage(card.fd(), &result), 0);
        return result;
    }
};

/* As under valgrind, which has 128 GiB for all cards. */
GAUDI_CHILD(has_little_address_space)
{
    const rlimit little{uint64_t{4} << 30, uint64_t{4} << 30};
    GAUDI_CHILD_REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
    own_card card;
    own_card other(1);
    GAUDI_CHILD_REQUIRE(
        hl().hlthunk_device_memory_alloc(
            card.fd(), info_of(card.fd()).dram_size, 0, false, true) == 0);
    GAUDI_CHILD_REQUIRE(errno == ENOMEM);
    GAUDI_CHILD_REQUIRE(usage_of(card.fd()).ctx_dram_mem == 0);
    for (own_card *each : {&card, &other}) {
        const uint64_t va = each->allocate_mapped(1);
        mark(*each, va, 4096, 3);
        GAUDI_CHILD_REQUIRE(marked(*each, va, 4096, 3));
    }
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    return 0;
}

TEST_F(emu_memory, is_allocated_in_whole_pages_and_given_back)
{
    const uint64_t whole = usage().dram_free_mem;
    for (const auto &[size, pages] : {std::pair<uint64_t, uint64_t>{1, 1},
                                      {device_page(), 1},
                                      {device_page() + 1, 2}}) {
        const uint64_t handle = allocate(size);
        EXPECT_NE(handle, 0u);
        EXPECT_EQ(usage().ctx_dram_mem, pages * device_page());
        EXPECT_EQ(usage().dram_free_mem, whole - pages * device_page());
        EXPECT_EQ(card.counters().allocations, 1u);
        EXPECT_EQ(free_handle(handle), 0);
        EXPECT_EQ(usage().dram_free_mem, whole);
        EXPECT_EQ(free_handle(handle), -EINVAL) << "only once";
    }
    EXPECT_EQ(allocate(0), 0u);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(emu_memory, a_full_card_has_no_more)
{
    const uint64_t whole = usage().dram_free_mem;
    for (const uint64_t more : {whole + 1, UINT64_MAX}) {
        EXPECT_EQ(allocate(more), 0u);
        EXPECT_EQ(errno, ENOMEM);
    }
    const uint64_t all = allocate(whole);
    ASSERT_NE(all, 0u);
    EXPECT_EQ(usage().dram_free_mem, 0u);
    EXPECT_EQ(allocate(1), 0u);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(free_handle(all), 0);
    EXPECT_NE(allocate(whole), 0u);
}

TEST_F(emu_memory, an_unknown_handle_is_refused)
{
    EXPECT_EQ(free_handle(12345), -EINVAL);
    EXPECT_EQ(map(12345), 0u);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(emu_memory, mappings_lie_in_the_dram_range_at_page_multiples)
{
    for (uint64_t size : {uint64_t{1}, device_page(), 5 * device_page()}) {
        const uint64_t va = map(allocate(size));
        EXPECT_GE(va, va_start);
        EXPECT_LE(va + size, va_end);
        EXPECT_EQ((va & 0xffffffffffff) % device_page(), 0u);
    }
    EXPECT_EQ(card.counters().mappings, 3u);
}

TEST_F(emu_memory, only_the_mapped_address_unmaps)
{
    const uint64_t va = map(allocate(2 * device_page()));
    EXPECT_EQ(unmap(va + 1), -EINVAL);
    EXPECT_EQ(unmap(va + device_page()), -EINVAL);
    EXPECT_EQ(unmap(0), -EINVAL);
    EXPECT_EQ(unmap(va), 0);
    EXPECT_EQ(unmap(va), -EINVAL);
    EXPECT_EQ(card.counters().mappings, 0u);
}

TEST_F(emu_memory, two_mappings_of_a_handle_show_the_same_bytes)
{
    const uint64_t handle = allocate(1);
    const uint64_t one    = map(handle);
    const uint64_t two    = map(handle);
    ASSERT_NE(one, two);

    mark(card, one + 123, 5000, 7);
    EXPECT_TRUE(marked(card, two + 123, 5000, 7));

    EXPECT_EQ(unmap(one), 0);
    EXPECT_EQ(free_handle(handle), -EINVAL) << "one mapping is left";
    EXPECT_TRUE(marked(card, two + 123, 5000, 7));
    EXPECT_EQ(unmap(two), 0);
    EXPECT_EQ(free_handle(handle), 0);
}

TEST_F(emu_memory, contents_survive_unmap_but_not_free)
{
    uint64_t handle = allocate(1);
    uint64_t va     = map(handle);
    char data[4096];
    fill_pattern(data, sizeof(data), 8);
    EXPECT_EQ(card.write(va, data, sizeof(data)), completed);
    EXPECT_EQ(unmap(va), 0);

    va              = map(handle);
    char seen[4096] = {};
    EXPECT_EQ(card.read(seen, va, sizeof(seen)), completed);
    EXPECT_TRUE(has_pattern(seen, sizeof(seen), 8));
    EXPECT_EQ(unmap(va), 0);
    EXPECT_EQ(free_handle(handle), 0);

    va = map(allocate(1));
    EXPECT_EQ(card.read(seen, va, sizeof(seen)), completed);
    EXPECT_TRUE(all_bytes_are(seen, sizeof(seen), 0))
        << "a card must not show what somebody else had there";
}

/* --- hints ---------------------------------------------------------------- */

TEST_F(emu_memory, a_hint_is_honoured)
{
    const uint64_t hint = va_start + 100 * device_page();
    EXPECT_EQ(map(allocate(3 * device_page()), hint), hint);
    EXPECT_EQ(map(allocate(1), hint + 3 * device_page()),
              hint + 3 * device_page())
        << "right behind it";
    EXPECT_NE(map(allocate(1), hint - device_page()), hint - device_page())
        << "the driver leaves room behind it";
    EXPECT_EQ(map(allocate(1), hint - 2 * device_page()),
              hint - 2 * device_page());
}

TEST_F(emu_memory, addresses_for_hints_are_given_to_hints_alone)
{
    /* For the vendor's own processors (hints_dram_reserved_va_range). */
    const uint64_t reserved = 0x1001500000000000;
    const uint64_t hint =
        reserved + device_page() - (reserved & 0xffffffffffff) % device_page();
    EXPECT_EQ(map(allocate(1), hint), hint);
    const uint64_t va = map(allocate(1));
    EXPECT_TRUE((va < reserved) || (va >= 0x1001700000000000));
}

/* --- the CPU -------------------------------------------------------------- */

GAUDI_CHILD(reads_device_memory_with_the_cpu)
{
    own_card card;
    const uint64_t va = card.allocate_mapped(1);
    return *reinterpret_cast<volatile char *>(va);
}

TEST(emu_cpu, cannot_touch_device_memory)
{
    EXPECT_EQ(run_child("reads_device_memory_with_the_cpu").signal, SIGSEGV);
}

TEST(emu_memory_limits, take_address_space_for_what_is_allocated_alone)
{
    EXPECT_TRUE(child_passes("has_little_address_space"));
}

} // namespace
