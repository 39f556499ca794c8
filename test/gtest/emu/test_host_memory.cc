/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory mapped for the card. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <csignal>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr size_t page = 4096;
/* Behind what the driver has for itself. */
constexpr uint64_t va_start = 0xfff0000100200000;
constexpr uint64_t va_end   = 0xfff0800000000000;
/* Of huge pages. */
constexpr uint64_t huge_start = 0xfff0800000000000;
constexpr uint64_t huge_end   = 0xfff1000000000000;
constexpr size_t huge_page    = 2 << 20;

/* A card would have kept the pages. Here the program goes on, and hears of the
 * job. */
GAUDI_CHILD(unmaps_host_memory_of_jobs)
{
    constexpr uint32_t size = 64 * mebi;
    own_card card;
    const uint64_t device = card.allocate_mapped(size);
    for (const bool to_card : {true, false}) {
        for (const uint32_t bytes : {64u, size}) {
            void *const area = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            GAUDI_CHILD_REQUIRE(area != MAP_FAILED);
            const uint64_t host    = card.map_host(area, size);
            const uint64_t aborted = card.counters().jobs_aborted;
            card.pause(true);
            const uint64_t seq = card.start(
                {to_card ? card.copy_chunk(pdma0, device, host, bytes)
                         : card.copy_chunk(pdma1, host, device, bytes)});
            GAUDI_CHILD_REQUIRE(munmap(area, size) == 0);
            card.pause(false);
            if (std::getenv("NOBODY_POLLS") != nullptr) {
                GAUDI_CHILD_REQUIRE(eventually(
                    [&] { return card.counters().jobs_aborted > aborted; }));
            }
            const outcome ended = card.wait(seq);
            GAUDI_CHILD_REQUIRE((ended.result == -EIO) &&
                                (ended.status == gaudi::shim::cs_aborted));
        }
    }
    char data[64]{};
    GAUDI_CHILD_REQUIRE(card.write(device, data, sizeof(data)) == completed);
    return 0;
}

/* What is no copy of a card's still ends the process. */
GAUDI_CHILD(touches_what_is_not_there)
{
    own_card card;
    char data[64]{};
    (void)card.write(card.allocate_mapped(64), data, sizeof(data));
    void *const area =
        mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char *>(area) = 1;
    return 0;
}

class emu_host : public emu {
protected:
    uint64_t map(void *data, uint64_t size)
    {
        errno = 0;
        return hl().hlthunk_host_memory_map(card.fd(), data, 0, size);
    }

    int unmap(uint64_t va) { return hl().hlthunk_memory_unmap(card.fd(), va); }
};

TEST_F(emu_host, an_unaligned_buffer_keeps_its_place_in_the_page)
{
    std::vector<char> memory(10 * page);
    for (size_t offset : {0u, 1u, 63u, 4095u}) {
        char *data        = memory.data() + page + offset;
        const uint64_t va = map(data, 3 * page);
        EXPECT_EQ(va % page, reinterpret_cast<uintptr_t>(data) % page);
        EXPECT_GE(va, va_start);
        EXPECT_LT(va, va_end);
    }
}

TEST_F(emu_host, huge_pages_have_a_range_of_their_own)
{
    const size_t size = 4 * huge_page;
    void *area        = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(area, MAP_FAILED);
    auto *data = static_cast<char *>(area);
    data += huge_page - reinterpret_cast<uintptr_t>(data) % huge_page;

    const uint64_t whole = map(data, 2 * huge_page);
    EXPECT_GE(whole, huge_start);
    EXPECT_LT(whole, huge_end);
    EXPECT_EQ(whole % huge_page, 0u);
    const uint64_t part = map(data, huge_page + 1);
    EXPECT_GE(part, va_start);
    EXPECT_LT(part, va_end);
    EXPECT_EQ(part % huge_page, 0u) << "aligned as its pointer";
    const uint64_t inside = map(data + page, huge_page);
    EXPECT_GE(inside, va_start);
    EXPECT_LT(inside, va_end);
    for (const uint64_t va : {whole, part, inside}) {
        EXPECT_EQ(unmap(va), 0);
    }
    EXPECT_EQ(map(data, 2 * huge_page), whole) << "free again";
    munmap(area, size);
}

TEST_F(emu_host, an_unusable_hint_is_ignored_unless_forced)
{
    constexpr uint32_t force_hint = 8;
    guarded_buffer buffer(2 * page);
    const auto with_hint = [&](char *data, uint64_t hint, uint32_t flags) {
        errno = 0;
        return api().hlthunk_host_memory_map_flags(card.fd(), data, hint, page,
                                                   flags);
    };
    const uint64_t hint = va_start + (1 << 30);
    EXPECT_EQ(with_hint(buffer.data(), hint, 0), hint);
    const uint64_t other = with_hint(buffer.data(), hint, 0);
    EXPECT_NE(other, hint) << "it is taken";
    EXPECT_NE(other, 0u);
    EXPECT_NE(with_hint(buffer.data(), hint + 1, 0), 0u);
    EXPECT_NE(with_hint(buffer.data(), 0xfff0000000000000, 0), 0u)
        << "the driver's";

    EXPECT_EQ(with_hint(buffer.data(), hint + page, force_hint), hint + page);
    const uint64_t mappings = card.counters().mappings;
    for (const uint64_t bad : {hint, hint + 1, uint64_t{0xfff0000000000000}}) {
        EXPECT_EQ(with_hint(buffer.data(), bad, force_hint), 0u);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_EQ(card.counters().mappings, mappings);
}

TEST_F(emu_host, only_the_unaligned_address_unmaps)
{
    guarded_buffer buffer(100); /* ends with its page */
    const uint64_t va = map(buffer.data(), buffer.size());
    ASSERT_NE(va % page, 0u);
    EXPECT_EQ(unmap(va / page * page), -EINVAL);
    EXPECT_EQ(unmap(va + 1), -EINVAL);
    EXPECT_EQ(unmap(va), 0);
    EXPECT_EQ(unmap(va), -EINVAL);
    EXPECT_EQ(card.counters().mappings, 0u);
}

/* As with the driver of Linux 6.12; that of 6.1 says EFAULT to all of it. */
TEST_F(emu_host, what_is_not_there_and_writable_is_efault_or_enomem_behind)
{
    EXPECT_EQ(map(nullptr, page), 0u);
    EXPECT_EQ(errno, EFAULT);

    guarded_buffer buffer(page);
    EXPECT_EQ(map(buffer.data() + page, 1), 0u) << "the guard page";
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(map(buffer.data(), page + 1), 0u) << "a byte too much";
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(map(buffer.data() - 1, page), 0u) << "a byte too early";
    EXPECT_EQ(errno, EFAULT);

    ASSERT_EQ(munmap(buffer.data(), page), 0);
    EXPECT_EQ(map(buffer.data(), 1), 0u) << "not mapped";
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(card.counters().mappings, 0u);
}

TEST_F(emu_host, read_only_memory_is_efault_or_enomem_behind)
{
    guarded_buffer buffer(2 * page);
    ASSERT_EQ(mprotect(buffer.data() + page, page, PROT_READ), 0);
    EXPECT_NE(map(buffer.data(), page), 0u);
    EXPECT_EQ(map(buffer.data() + page, page), 0u);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(map(buffer.data(), 2 * page), 0u);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(card.counters().mappings, 1u);
}

TEST_F(emu_host, mapping_fills_in_absent_pages)
{
    /* Pinned memory has to be there before the engine asks for it. */
    const size_t size = 16 * page;
    void *data        = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    ASSERT_NE(map(data, size), 0u);
    unsigned char present[16] = {};
    ASSERT_EQ(mincore(data, size, present), 0);
    EXPECT_TRUE(all_bytes_are(present, sizeof(present), 1));
    munmap(data, size);
}

/* --- command buffers of the driver ---------------------------------------- */

TEST_F(emu_host, a_mapped_driver_command_buffer_runs)
{
    uint64_t handle = 0;
    uint64_t va     = 0;
    ASSERT_EQ(
        api().hlthunk_request_mapped_command_buffer(card.fd(), 4096, &handle),
        0);
    ASSERT_EQ(
        api().hlthunk_get_mapped_cb_device_va_by_handle(card.fd(), handle, &va),
        0);
    void *data = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED,
                      card.fd(), static_cast<off_t>(handle));
    ASSERT_NE(data, MAP_FAILED);

    char text[]           = "through a command buffer of the driver";
    const uint64_t device = card.allocate_mapped(1);
    const uint64_t host   = card.map_host(text, sizeof(text));
    *static_cast<gaudi::shim::lin_dma *>(data) =
        gaudi::shim::make_lin_dma(device, host, sizeof(text));
    const hl_cs_chunk chunk = chunk_at(pdma0, va, sizeof(gaudi::shim::lin_dma));
    EXPECT_EQ(card.wait(card.start({chunk})), completed);

    char seen[sizeof(text)] = {};
    EXPECT_EQ(card.read(seen, device, sizeof(seen)), completed);
    EXPECT_STREQ(seen, text);
    munmap(data, page);
    EXPECT_EQ(api().hlthunk_destroy_command_buffer(card.fd(), handle), 0);
    const wished_faults only_the_job("packet=abort");
    EXPECT_EQ(card.wait(card.start({chunk})), aborted) << "it has gone";
}

TEST(emu_host_memory, that_is_unmapped_aborts_the_jobs_that_copy_it)
{
    for (const char *engines : {"0", "1"}) {
        environment variables{{"HLTHUNK_EMU_ENGINES", engines}};
        if (*engines == '1') {
            variables.emplace_back("NOBODY_POLLS", "y");
        }
        const child_result result =
            run_child("unmaps_host_memory_of_jobs", {variables});
        EXPECT_EQ(result.signal, 0) << engines;
        EXPECT_EQ(result.exit_code, 0) << result.error;
    }
}

TEST(emu_host_memory, a_fault_of_the_program_is_its_own)
{
    EXPECT_EQ(run_child("touches_what_is_not_there").signal, SIGSEGV);
}

} // namespace
