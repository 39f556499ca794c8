/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(): what the child may do, and what the parent notices (nothing). */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr uint32_t large = 64 * mebi;

/* In a child: open a card of its own and move data with it. The copy is large
 * and nobody polls, so that engine threads have to make it. */
int use_a_card(unsigned index)
{
    raw_card own(index);
    GAUDI_CHILD_REQUIRE(own.fd() >= 0);
    std::vector<char> data(mebi);
    fill_pattern(data.data(), data.size(), index);
    const uint64_t src = own.allocate_mapped(mebi);
    const uint64_t dst = own.allocate_mapped(mebi);
    GAUDI_CHILD_REQUIRE(own.write(src, data.data(), mebi) == completed);
    own.start({own.copy_chunk(edma0, dst, src, mebi)});
    GAUDI_CHILD_REQUIRE(eventually(
        [&] { return own.counters().device_to_device_bytes == mebi; }));
    GAUDI_CHILD_REQUIRE(own.read(data.data(), dst, mebi) == completed);
    GAUDI_CHILD_REQUIRE(has_pattern(data.data(), data.size(), index));
    return 0;
}

TEST_F(emu, a_forked_child_cannot_use_the_card)
{
    const uint64_t handle = card.allocate(1);
    const uint64_t va     = card.map(handle);
    static char data[4096];
    const uint64_t seq = card.start({card.copy_chunk(edma0, va, va + 64, 64)});
    uint64_t buffer    = 0;
    ASSERT_EQ(
        api().hlthunk_request_mapped_command_buffer(card.fd(), 4096, &buffer),
        0);
    hl_cs_chunk chunk = card.copy_chunk(edma0, va, va + 64, 64);

    forked_process child([&] {
        const int fd    = card.fd();
        uint32_t status = 0;
        uint64_t value  = 0;
        char id[13];
        hlthunk_hw_ip_info info{};
        hlthunk_dram_usage_info usage{};
        hlthunk_open_stats_info stats{};
        hlthunk_emu_counters counters{};
        hlthunk_wait_multi_cs_in multi_in{};
        hlthunk_wait_multi_cs_out multi_out{};
        const auto result_of = [](auto &&call) {
            errno = 0;
            return (call() != 0) ? 0 : -errno;
        };
        const int answers[] = {
            card.submit({chunk}, value),
            hl().hlthunk_wait_for_cs(fd, seq, 1000, &status),
            api().hlthunk_wait_for_multi_cs(fd, &multi_in, &multi_out),
            hl().hlthunk_get_hw_ip_info(fd, &info),
            hl().hlthunk_get_dram_usage(fd, &usage),
            hl().hlthunk_get_open_stats(fd, &stats),
            hl().hlthunk_get_device_status_info(fd),
            hl().hlthunk_get_pci_bus_id_from_fd(fd, id, 13),
            result_of([&] {
                return hl().hlthunk_device_memory_alloc(fd, 1, 0, false, true);
            }),
            result_of(
                [&] { return hl().hlthunk_device_memory_map(fd, handle, 0); }),
            result_of([&] {
                return hl().hlthunk_host_memory_map(fd, data, 0, sizeof(data));
            }),
            hl().hlthunk_memory_unmap(fd, va),
            hl().hlthunk_device_memory_free(fd, handle),
            export_range(card, va, 4096),
            api().hlthunk_device_memory_export_dmabuf_fd(fd, va, 4096, 0),
            api().hlthunk_request_command_buffer(fd, 4096, &value),
            api().hlthunk_request_mapped_command_buffer(fd, 4096, &value),
            api().hlthunk_get_mapped_cb_device_va_by_handle(fd, buffer, &value),
            api().hlthunk_destroy_command_buffer(fd, buffer),
            api().hlthunk_emu_get_counters(fd, &counters),
            api().hlthunk_emu_pause(fd, true)};
        EXPECT_THAT(answers, ::testing::Each(-ENODEV));
        GAUDI_CHILD_REQUIRE_NO_FAILURE();
        GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_name_from_fd(fd) ==
                            HLTHUNK_DEVICE_INVALID);
        GAUDI_CHILD_REQUIRE(api().hlthunk_get_device_id_from_fd(fd) == 0);
        GAUDI_CHILD_REQUIRE(open_card(0) == -EBUSY);
        GAUDI_CHILD_REQUIRE(hl().hlthunk_close(fd) == 0);
        GAUDI_CHILD_REQUIRE(fcntl(fd, F_GETFD) < 0);
        GAUDI_CHILD_REQUIRE(hl().hlthunk_memory_unmap(fd, va) == -EBADF);
        GAUDI_CHILD_REQUIRE(open_card(0) == -EBUSY);
        return 0;
    });
    EXPECT_EQ(child.wait().exit_code, 0);

    EXPECT_EQ(card.wait(seq), completed);
    EXPECT_EQ(card.copy(edma0, va, va + 64, 64), completed);
    EXPECT_EQ(api().hlthunk_destroy_command_buffer(card.fd(), buffer), 0);
    EXPECT_EQ(hl().hlthunk_memory_unmap(card.fd(), va), 0);
    EXPECT_EQ(hl().hlthunk_device_memory_free(card.fd(), handle), 0);
}

TEST_F(emu, a_forked_child_uses_other_cards)
{
    const uint64_t va = card.allocate_mapped(1);
    forked_process child([] {
        for (int i = 0; i < 2; ++i) {
            const int ret = use_a_card(1);
            GAUDI_CHILD_REQUIRE(ret == 0);
        }
        GAUDI_CHILD_REQUIRE(count_threads("hlthunk-emu") == 1);
        /* The parent has the first card, so this is the second. */
        const int fd = hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
        GAUDI_CHILD_REQUIRE(fd >= 0);
        GAUDI_CHILD_REQUIRE(open_card(1) == -EBUSY);
        return 0;
    });
    EXPECT_EQ(card.copy(edma0, va, va + 64, 64), completed);
    EXPECT_EQ(child.wait().exit_code, 0);
    raw_card second(1);
    EXPECT_GE(second.fd(), 0) << "free again";
    EXPECT_EQ(card.copy(edma0, va, va + 64, 64), completed);
}

/* --- who has the card ----------------------------------------------------- */

TEST_F(emu, a_card_is_free_for_a_forked_child_when_its_parent_has_closed_it)
{
    gate closed;
    forked_process child([&] {
        GAUDI_CHILD_REQUIRE(closed.wait());
        GAUDI_CHILD_REQUIRE(hl().hlthunk_memory_unmap(card.fd(), 1) == -ENODEV);
        return use_a_card(0);
    });
    close_card(card);
    closed.open();
    EXPECT_EQ(child.wait().exit_code, 0);
    own_card again;
}

TEST_F(emu, a_program_that_a_forked_child_executes_has_nothing_of_the_card)
{
    int ends[2];
    int ready[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    forked_process child([&] {
        dup2(ends[0], STDIN_FILENO);
        execl("/bin/cat", "cat", nullptr);
        return 1;
    });
    close(ends[0]);
    close(ready[1]);
    char letter = 0;
    EXPECT_EQ(read(ready[0], &letter, 1), 0) << "it executes the program";
    close(ready[0]);
    close_card(card);
    {
        own_card again;
    }
    close(ends[1]);
    EXPECT_EQ(child.wait().exit_code, 0);
}

/* --- beside transfers ----------------------------------------------------- */

TEST_F(emu, forks_in_the_middle_of_a_transfer_do_no_harm)
{
    std::vector<char> data(large);
    std::vector<char> seen(large);
    fill_pattern(data.data(), large, 5);
    const uint64_t device = card.allocate_mapped(uint64_t{2} * large);
    const uint64_t host   = card.map_host(data.data(), large);
    const uint64_t target = card.map_host(seen.data(), large);
    ASSERT_EQ(card.copy(pdma0, device, host, large), completed);

    /* On one queue: each job needs what the one before it has copied. */
    const uint64_t copied = card.counters().device_to_device_bytes;
    const uint64_t middle = device + large;
    const uint64_t forward =
        card.start({card.copy_chunk(edma0, middle, device, large)});
    const uint64_t other =
        card.start({card.copy_chunk(pdma1, target, device, large)});
    for (int i = 0; i < 8; ++i) {
        EXPECT_GE(card.wait(forward, 0).result, 0);
        forked_process child([&] {
            GAUDI_CHILD_REQUIRE(card.wait(forward, 0).result == -ENODEV);
            GAUDI_CHILD_REQUIRE(hl().hlthunk_close(card.fd()) == 0);
            return use_a_card(1);
        });
        EXPECT_GE(card.wait(other, 0).result, 0);
        EXPECT_EQ(child.wait().exit_code, 0);
    }
    EXPECT_EQ(card.wait(forward), completed);
    EXPECT_EQ(card.wait(other), completed);
    EXPECT_EQ(card.counters().device_to_device_bytes, copied + large);
    EXPECT_TRUE(seen == data);
    ASSERT_EQ(card.copy(pdma1, target, middle, large), completed);
    EXPECT_TRUE(seen == data);
}

} // namespace
