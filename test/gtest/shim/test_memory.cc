/* SPDX-License-Identifier: BSD-3-Clause */
/* Ownership: allocations, registrations, pinned buffers. */
#include "gtest/shim/fixture.h"

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

/* --- pinned buffers ------------------------------------------------------- */

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
    std::unique_ptr<card> other;
    ASSERT_EQ(open_card(hl(), bus_id(1), other), 0);
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
    EXPECT_THAT(warnings.take(), UnorderedElementsAre(HasSubstr(bus_id(0)),
                                                      HasSubstr(bus_id(1))));
    dev.reset(); /* takes the mappings with it */
}

} // namespace
