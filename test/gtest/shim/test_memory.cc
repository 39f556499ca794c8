/* SPDX-License-Identifier: BSD-3-Clause */
/* Ownership: allocations, registrations, pinned buffers. */
#include "gtest/shim/fixture.h"

#include "common/process_state.h"

#include <array>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

namespace {

class shim_memory : public shim_test {
protected:
    int export_dmabuf(uint64_t va) const
    {
        return hl().hlthunk_device_mapped_memory_export_dmabuf_fd(
            dev->fd(), va, 4096, 0, O_RDWR | O_CLOEXEC);
    }
};

TEST_F(shim_memory, empty_objects_own_nothing)
{
    allocation memory;
    registration map;
    pinned_buffer buffer;
    EXPECT_EQ(memory.address(), 0u);
    EXPECT_EQ(map.address(), 0u);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.address(), 0u);
    EXPECT_EQ(memory.close(), 0);
    EXPECT_EQ(map.close(), 0);
}

TEST_F(shim_memory, what_goes_out_of_scope_is_given_back)
{
    {
        allocation device_memory;
        registration host_map;
        pinned_buffer buffer;
        guarded_buffer memory(5000);
        ASSERT_EQ(dev->allocate(1, 0, device_memory), 0);
        ASSERT_EQ(dev->register_host(memory.data(), 5000, host_map), 0);
        ASSERT_EQ(pinned_buffer::create(*dev, 1, buffer), 0);
        EXPECT_NE(device_memory.address(), 0u);
        EXPECT_NE(host_map.address(), 0u);
        EXPECT_EQ(counters().allocations, 1u);
        EXPECT_EQ(counters().mappings, 3u);
    }
    EXPECT_EQ(counters().allocations, 0u);
    EXPECT_EQ(counters().mappings, 0u);
}

TEST_F(shim_memory, a_move_moves_the_ownership)
{
    allocation first;
    ASSERT_EQ(dev->allocate(1, 0, first), 0);
    const uint64_t value = first.address();
    allocation second(std::move(first));
    EXPECT_EQ(second.address(), value);
    EXPECT_EQ(first.address(), 0u); // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(counters().allocations, 1u);

    guarded_buffer memory(4096);
    registration one;
    ASSERT_EQ(dev->register_host(memory.data(), 4096, one), 0);
    const uint64_t va = one.address();
    registration two;
    two = std::move(one);
    EXPECT_EQ(two.address(), va);
    EXPECT_EQ(one.address(), 0u); // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(counters().mappings, 2u);

    pinned_buffer here;
    ASSERT_EQ(pinned_buffer::create(*dev, 100, here), 0);
    char *data = here.data();
    pinned_buffer there(std::move(here));
    EXPECT_EQ(there.data(), data);
    EXPECT_EQ(here.data(), nullptr); // NOLINT(bugprone-use-after-move)
}

TEST_F(shim_memory, assignment_gives_back_what_was_there)
{
    allocation target;
    ASSERT_EQ(dev->allocate(1, 0, target), 0);
    allocation source;
    ASSERT_EQ(dev->allocate(1, 0, source), 0);
    target = std::move(source);
    EXPECT_EQ(counters().allocations, 1u);
    ASSERT_EQ(dev->allocate(1, 0, target), 0);
    EXPECT_EQ(counters().allocations, 1u) << "also through an output";
    EXPECT_EQ(counters().mappings, 1u);
    target = allocation();
    EXPECT_EQ(counters().allocations, 0u);

    pinned_buffer buffer;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffer), 0);
        EXPECT_EQ(counters().mappings, 1u);
    }
}

TEST_F(shim_memory, a_failure_leaves_the_output_alone)
{
    allocation memory;
    ASSERT_EQ(dev->allocate(1, 0, memory), 0);
    const uint64_t value = memory.address();
    EXPECT_EQ(dev->allocate(0, 0, memory), -EINVAL);
    EXPECT_EQ(dev->allocate(uint64_t{1} << 50, 0, memory), -ENOMEM);
    EXPECT_EQ(memory.address(), value);

    guarded_buffer host(4096);
    registration map;
    ASSERT_EQ(dev->register_host(host.data(), 4096, map), 0);
    const uint64_t va = map.address();
    EXPECT_EQ(dev->register_host(nullptr, 4096, map), -EFAULT);
    EXPECT_EQ(map.address(), va);

    pinned_buffer buffer;
    EXPECT_EQ(pinned_buffer::create(*dev, 0, buffer), -EINVAL);
    EXPECT_EQ(buffer.data(), nullptr);
}

TEST_F(shim_memory, what_cannot_be_mapped_is_not_kept)
{
    library odd(emulator_path());
    odd.hlthunk_device_memory_map = [](int, uint64_t, uint64_t) {
        errno = EINVAL;
        return uint64_t{0};
    };
    dev.reset();
    dev = open_card(odd, 0);
    allocation memory;
    EXPECT_EQ(dev->allocate(1, 0, memory), -EINVAL);
    EXPECT_EQ(memory.address(), 0u);
    EXPECT_EQ(counters().allocations, 0u);
    dev.reset();
}

TEST_F(shim_memory, an_allocation_takes_the_wished_address)
{
    const uint64_t wish = dev->capabilities().memory_start + 7 * device_page();
    allocation memory;
    ASSERT_EQ(dev->allocate(1, wish, memory), 0);
    EXPECT_EQ(memory.address(), wish);
    allocation other;
    ASSERT_EQ(dev->allocate(1, wish, other), 0);
    EXPECT_NE(other.address(), wish) << "the driver may choose another";
}

/* --- refusals ------------------------------------------------------------- */

TEST_F(shim_memory, a_refused_close_can_be_repeated)
{
    device_memory memory(*dev, 1);
    const int dmabuf = export_dmabuf(memory.va());
    EXPECT_EQ(memory.memory.close(), -EINVAL) << "exported";
    EXPECT_NE(memory.va(), 0u) << "and still owned";
    EXPECT_EQ(counters().allocations, 1u);
    close(dmabuf);
    EXPECT_EQ(memory.memory.close(), 0);
    EXPECT_EQ(memory.memory.close(), 0) << "of nothing";
    EXPECT_EQ(counters().allocations, 0u);
}

TEST_F(shim_memory, a_refused_free_is_warned_about)
{
    static uint64_t handle;
    handle = 0;
    library stubborn(emulator_path());
    stubborn.hlthunk_device_memory_free = [](int, uint64_t value) {
        handle = value;
        return -EINVAL;
    };
    dev.reset();
    dev = open_card(stubborn, 0);
    {
        allocation memory;
        ASSERT_EQ(dev->allocate(1, 0, memory), 0);
        EXPECT_EQ(memory.close(), -EINVAL);
        EXPECT_EQ(memory.address(), 0u) << "it is not mapped any more";
        EXPECT_EQ(counters().allocations, 1u);
    }
    EXPECT_THAT(warnings.take(),
                ElementsAre(AllOf(HasSubstr("freeing device memory"),
                                  HasSubstr(bus_id(0)))));
    EXPECT_EQ(hl().hlthunk_device_memory_free(dev->fd(), handle), 0);
    dev.reset();
}

TEST_F(shim_memory, a_refused_unmap_is_warned_about)
{
    uint64_t va = 0;
    int dmabuf  = -1;
    {
        allocation memory;
        ASSERT_EQ(dev->allocate(1, 0, memory), 0);
        va     = memory.address();
        dmabuf = export_dmabuf(va);
        ASSERT_GE(dmabuf, 0);
    }
    EXPECT_THAT(warnings.take(),
                ElementsAre(AllOf(HasSubstr("unmapping"), HasSubstr(bus_id(0))),
                            HasSubstr("freeing device memory")));
    close(dmabuf);
    EXPECT_EQ(hl().hlthunk_memory_unmap(dev->fd(), va), 0);
    dev.reset(); /* takes the memory with it */
}

TEST_F(shim_memory, a_released_mapping_is_not_unmapped)
{
    guarded_buffer memory(4096);
    uint64_t va = 0;
    {
        registration map;
        ASSERT_EQ(dev->register_host(memory.data(), 4096, map), 0);
        va = map.address();
        map.release();
        EXPECT_EQ(map.address(), 0u);
    }
    EXPECT_EQ(counters().mappings, 1u);
    EXPECT_EQ(hl().hlthunk_memory_unmap(dev->fd(), va), 0);
}

/* --- pinned buffers ------------------------------------------------------- */

TEST_F(shim_memory, a_pinned_buffer_is_zeroed_whole_pages)
{
    for (size_t size : {1u, 4095u, 4096u, 4097u, 1000000u}) {
        pinned_buffer buffer;
        ASSERT_EQ(pinned_buffer::create(*dev, size, buffer), 0);
        EXPECT_GE(buffer.size(), size);
        EXPECT_LT(buffer.size(), size + 4096);
        EXPECT_EQ(buffer.size() % 4096, 0u);
        EXPECT_EQ(buffer.address() % 4096, 0u);
        EXPECT_TRUE(all_bytes_are(buffer.data(), buffer.size(), 0));
    }
}

TEST_F(shim_memory, a_pinned_buffer_is_not_inherited)
{
    pinned_buffer buffer;
    ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffer), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        unsigned char present = 0;
        _exit((mincore(buffer.data(), 4096, &present) != 0) && (errno == ENOMEM)
                  ? 0
                  : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(shim_memory, an_abandoned_buffer_stays_pinned)
{
    char *data  = nullptr;
    uint64_t va = 0;
    {
        pinned_buffer buffer;
        ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffer), 0);
        data = buffer.data();
        va   = buffer.address();
        buffer.abandon();
        EXPECT_EQ(buffer.data(), nullptr);
    }
    EXPECT_EQ(counters().mappings, 1u);
    data[0] = 1; /* still there */
    EXPECT_EQ(hl().hlthunk_memory_unmap(dev->fd(), va), 0);
    munmap(data, 4096);
}

TEST_F(shim_memory, a_pinned_buffer_that_cannot_be_unmapped_keeps_its_pages)
{
    char *data = nullptr;
    {
        pinned_buffer buffer;
        ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffer), 0);
        data = buffer.data();
        /* Behind its back, so that its own unmap is refused. */
        ASSERT_EQ(hl().hlthunk_memory_unmap(dev->fd(), buffer.address()), 0);
    }
    EXPECT_THAT(warnings.take(),
                ElementsAre(HasSubstr("unmapping pinned buffers")));
    data[0] = 1;
    munmap(data, 4096);
}

TEST_F(shim_memory, that_a_card_unmaps_no_pinned_buffer_is_told_once)
{
    std::unique_ptr<device> other;
    ASSERT_EQ(device::open(hl(), bus_id(1), other), 0);
    {
        const wished_faults refusal("unmap=EINVAL");
        std::array<pinned_buffer, 3> buffers;
        std::array<pinned_buffer, 3> buffers_of_other;
        for (size_t i = 0; i < buffers.size(); ++i) {
            ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffers[i]), 0);
            ASSERT_EQ(pinned_buffer::create(*other, 4096, buffers_of_other[i]),
                      0);
        }
    }
    const std::string start = "unmapping pinned buffers of card ";
    const std::string why   = " failed: Invalid argument";
    EXPECT_THAT(warnings.take(), UnorderedElementsAre(start + bus_id(0) + why,
                                                      start + bus_id(1) + why));
    dev.reset(); /* takes the mappings with it */
}

} // namespace
