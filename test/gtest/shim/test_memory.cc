/* Ownership: memory handles, mappings, pinned buffers. */
#include "gtest/shim/fixture.h"

#include "common/process_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    memory_handle handle;
    mapping map;
    pinned_buffer buffer;
    EXPECT_EQ(handle.value(), 0u);
    EXPECT_EQ(map.va(), 0u);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.va(), 0u);
    EXPECT_EQ(handle.close(), 0);
    EXPECT_EQ(map.close(), 0);
}

TEST_F(shim_memory, what_goes_out_of_scope_is_given_back)
{
    {
        memory_handle handle;
        mapping device_map;
        mapping host_map;
        pinned_buffer buffer;
        guarded_buffer memory(5000);
        ASSERT_EQ(memory_handle::allocate(*dev, 1, handle), 0);
        ASSERT_EQ(mapping::map_device(*dev, handle, 0, device_map), 0);
        ASSERT_EQ(mapping::map_host(*dev, memory.data(), 5000, host_map), 0);
        ASSERT_EQ(pinned_buffer::create(*dev, 1, buffer), 0);
        EXPECT_NE(device_map.va(), 0u);
        EXPECT_NE(host_map.va(), 0u);
        EXPECT_EQ(counters().allocations, 1u);
        EXPECT_EQ(counters().mappings, 3u);
    }
    EXPECT_EQ(counters().allocations, 0u);
    EXPECT_EQ(counters().mappings, 0u);
}

TEST_F(shim_memory, a_move_moves_the_ownership)
{
    memory_handle first;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, first), 0);
    const uint64_t value = first.value();
    memory_handle second(std::move(first));
    EXPECT_EQ(second.value(), value);
    EXPECT_EQ(first.value(), 0u); // NOLINT(bugprone-use-after-move)

    mapping one;
    ASSERT_EQ(mapping::map_device(*dev, second, 0, one), 0);
    const uint64_t va = one.va();
    mapping two;
    two = std::move(one);
    EXPECT_EQ(two.va(), va);
    EXPECT_EQ(one.va(), 0u); // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(counters().mappings, 1u);

    pinned_buffer here;
    ASSERT_EQ(pinned_buffer::create(*dev, 100, here), 0);
    char *data = here.data();
    pinned_buffer there(std::move(here));
    EXPECT_EQ(there.data(), data);
    EXPECT_EQ(here.data(), nullptr); // NOLINT(bugprone-use-after-move)
}

TEST_F(shim_memory, assignment_gives_back_what_was_there)
{
    memory_handle target;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, target), 0);
    memory_handle source;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, source), 0);
    target = std::move(source);
    EXPECT_EQ(counters().allocations, 1u);
    ASSERT_EQ(memory_handle::allocate(*dev, 1, target), 0);
    EXPECT_EQ(counters().allocations, 1u) << "also through an output";
    target = memory_handle();
    EXPECT_EQ(counters().allocations, 0u);

    pinned_buffer buffer;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(pinned_buffer::create(*dev, 4096, buffer), 0);
        EXPECT_EQ(counters().mappings, 1u);
    }
}

TEST_F(shim_memory, a_failure_leaves_the_output_alone)
{
    memory_handle handle;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, handle), 0);
    const uint64_t value = handle.value();
    EXPECT_EQ(memory_handle::allocate(*dev, 0, handle), -EINVAL);
    EXPECT_EQ(memory_handle::allocate(*dev, uint64_t{1} << 50, handle),
              -ENOMEM);
    EXPECT_EQ(handle.value(), value);

    mapping map;
    ASSERT_EQ(mapping::map_device(*dev, handle, 0, map), 0);
    const uint64_t va = map.va();
    EXPECT_EQ(mapping::map_device(*dev, memory_handle(), 0, map), -EINVAL);
    EXPECT_EQ(mapping::map_host(*dev, nullptr, 4096, map), -EFAULT);
    EXPECT_EQ(map.va(), va);

    pinned_buffer buffer;
    EXPECT_EQ(pinned_buffer::create(*dev, 0, buffer), -EINVAL);
    EXPECT_EQ(buffer.data(), nullptr);
}

TEST_F(shim_memory, a_mapping_takes_the_wished_address)
{
    memory_handle handle;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, handle), 0);
    const uint64_t wish = dev->hw_info().dram_base_address + 7 * device_page;
    mapping map;
    ASSERT_EQ(mapping::map_device(*dev, handle, wish, map), 0);
    EXPECT_EQ(map.va(), wish);
    mapping other;
    ASSERT_EQ(mapping::map_device(*dev, handle, wish, other), 0);
    EXPECT_NE(other.va(), wish) << "the driver may choose another";
}

/* --- refusals ------------------------------------------------------------- */

TEST_F(shim_memory, a_refused_close_can_be_repeated)
{
    device_memory memory(*dev, 1);
    EXPECT_EQ(memory.handle.close(), -EINVAL) << "mapped";
    EXPECT_NE(memory.handle.value(), 0u) << "and still owned";

    const int dmabuf = export_dmabuf(memory.va());
    EXPECT_EQ(memory.map.close(), -EINVAL) << "exported";
    EXPECT_NE(memory.va(), 0u);
    close(dmabuf);
    EXPECT_EQ(memory.map.close(), 0);
    EXPECT_EQ(memory.map.close(), 0) << "of nothing";
    EXPECT_EQ(memory.handle.close(), 0);
}

TEST_F(shim_memory, a_refused_free_is_warned_about)
{
    mapping map;
    uint64_t value = 0;
    {
        memory_handle handle;
        ASSERT_EQ(memory_handle::allocate(*dev, 1, handle), 0);
        ASSERT_EQ(mapping::map_device(*dev, handle, 0, map), 0);
        value = handle.value();
    }
    EXPECT_THAT(warnings.take(),
                ElementsAre(AllOf(HasSubstr("freeing device memory"),
                                  HasSubstr(bus_id(0)))));
    EXPECT_EQ(map.close(), 0);
    EXPECT_EQ(hl().hlthunk_device_memory_free(dev->fd(), value), 0);
}

TEST_F(shim_memory, a_refused_unmap_is_warned_about)
{
    memory_handle handle;
    ASSERT_EQ(memory_handle::allocate(*dev, 1, handle), 0);
    uint64_t va = 0;
    int dmabuf  = -1;
    {
        mapping map;
        ASSERT_EQ(mapping::map_device(*dev, handle, 0, map), 0);
        va     = map.va();
        dmabuf = export_dmabuf(va);
        ASSERT_GE(dmabuf, 0);
    }
    EXPECT_THAT(warnings.take(), ElementsAre(AllOf(HasSubstr("unmapping"),
                                                   HasSubstr(bus_id(0)))));
    close(dmabuf);
    EXPECT_EQ(hl().hlthunk_memory_unmap(dev->fd(), va), 0);
}

TEST_F(shim_memory, a_released_mapping_is_not_unmapped)
{
    guarded_buffer memory(4096);
    uint64_t va = 0;
    {
        mapping map;
        ASSERT_EQ(mapping::map_host(*dev, memory.data(), 4096, map), 0);
        va = map.va();
        map.release();
        EXPECT_EQ(map.va(), 0u);
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
        EXPECT_EQ(buffer.va() % 4096, 0u);
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
        va   = buffer.va();
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
        ASSERT_EQ(hl().hlthunk_memory_unmap(dev->fd(), buffer.va()), 0);
    }
    EXPECT_THAT(warnings.take(),
                ElementsAre(HasSubstr("unmapping a pinned buffer")));
    data[0] = 1;
    munmap(data, 4096);
}

} // namespace
