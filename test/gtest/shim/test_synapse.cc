/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and memory on a card that SynapseAI has. */
#include "gtest/shim/synapse_fixture.h"

#include "hlthunk_shim/synapse/functions.h"

#include <thread>

#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

using synapse_memory_test = synapse_test;
using synapse_faults      = synapse_queue_test;

constexpr size_t some = 100001;

class synapse_copies : public synapse_queue_test {
protected:
    /* Our host memory has got to the card. */
    void expect_arrived()
    {
        pinned_buffer back = pin(some);
        auto to_host       = make_queue(dma_direction::device_to_host);
        EXPECT_EQ(copy(*to_host, back.address(), memory.address(), some), 0);
        EXPECT_EQ(std::memcmp(back.data(), host.data(), some), 0);
    }
};

/* SynapseAI has room for so many events, of all that the process has. */
class synapse_events : public synapse_copies {
protected:
    static constexpr unsigned depth = 8;

    void open(size_t events)
    {
        synapse().syn_stand_in_limit_events(events);
        queue = make_queue(dma_direction::host_to_device, {.depth = depth});
        ASSERT_NE(queue, nullptr);
    }

    void TearDown() override
    {
        synapse().syn_stand_in_limit_events(SIZE_MAX);
        synapse_copies::TearDown();
    }

    /* @return How many copies it takes at a time; all of them end. */
    unsigned fill()
    {
        pause(true);
        int ret;
        while ((ret = submit()) == 0) {}
        EXPECT_EQ(ret, -EAGAIN);
        EXPECT_FALSE(dev->is_lost());
        pause(false);
        const unsigned count = queue->outstanding();
        EXPECT_EQ(queue->wait_all(patience_us), 0);
        for (unsigned i = 0; i < count; ++i) {
            EXPECT_EQ(collect_one(*queue), 0);
        }
        return count;
    }
};

} // namespace

TEST(synapse_status, is_an_errno)
{
    EXPECT_EQ(to_error(synSuccess), 0);
    EXPECT_EQ(to_error(synBusy), -EAGAIN);
    EXPECT_EQ(to_error(synCbFull), -EAGAIN);
    EXPECT_EQ(to_error(synDeviceReset), -ENODEV);
    EXPECT_EQ(to_error(synUninitialized), -ENODEV);
    EXPECT_EQ(to_error(synSynapseTerminated), -ENODEV);
    EXPECT_EQ(to_error(synMappingNotFound), -EFAULT);
    EXPECT_EQ(to_error(synFail), -EIO);
    EXPECT_EQ(to_error(static_cast<synStatus>(47)), -EIO);
}

TEST_F(synapse_copies, arrive_in_every_direction)
{
    for (const size_t length : {size_t{1}, size_t{4097}, some, 9 * mebi + 1}) {
        pinned_buffer source  = pin(length);
        pinned_buffer target  = pin(length);
        allocation both       = allocate(2 * length);
        const uint64_t second = both.address() + length;
        fill_pattern(source.data(), length, length);

        auto on_device = make_queue(dma_direction::device_to_device);
        auto to_host   = make_queue(dma_direction::device_to_host);
        EXPECT_EQ(copy(*queue, both.address(), source.address(), length), 0);
        EXPECT_EQ(copy(*on_device, second, both.address(), length), 0);
        EXPECT_EQ(copy(*to_host, target.address(), second, length), 0);
        EXPECT_TRUE(has_pattern(target.data(), length, length));
    }
}

TEST_F(synapse_copies, end_in_order_and_say_when_there_is_no_room)
{
    constexpr unsigned depth = 8;
    queue = make_queue(dma_direction::host_to_device, {.depth = depth});
    pause(true);
    int cookies[depth];
    for (int &cookie : cookies) {
        ASSERT_EQ(submit(some, &cookie), 0);
    }
    EXPECT_EQ(submit(1), -EAGAIN);
    dma_completion done[depth];
    EXPECT_EQ(queue->poll(done, depth), 0u);
    const ticket oldest = queue->oldest_ticket();
    EXPECT_EQ(dev->query(oldest, 0), 0);
    EXPECT_EQ(queue->wait_all(1000), -EAGAIN);

    pause(false);
    EXPECT_EQ(queue->wait_all(patience_us), 0);
    EXPECT_EQ(queue->poll(done, depth), depth);
    for (unsigned i = 0; i < depth; ++i) {
        EXPECT_EQ(done[i].cookie, &cookies[i]);
        EXPECT_EQ(done[i].status, 0);
    }
    EXPECT_EQ(dev->query(oldest, 0), 1);
    EXPECT_EQ(queue->outstanding(), 0u);
}

/* What SynapseAI does not look at would reset the card. */
TEST_F(synapse_copies, ends_that_the_card_does_not_reach_are_refused)
{
    const auto block = dev->application_block();
    ASSERT_TRUE(block.has_value());
    const uint64_t end    = block->start + block->size;
    const uint64_t device = memory.address();
    const uint64_t ours   = host.address();
    auto on_device        = make_queue(dma_direction::device_to_device);
    std::vector<char> unmapped(some);
    const auto stray = reinterpret_cast<uintptr_t>(unmapped.data());
    EXPECT_EQ(copy(*queue, device, stray, some), -EFAULT);
    EXPECT_EQ(copy(*queue, device, ours, host.size() + 1), -EFAULT);
    EXPECT_EQ(copy(*queue, end - 1, ours, 2), -EFAULT);
    EXPECT_EQ(copy(*queue, end - 1, ours, 1), 0);
    EXPECT_EQ(copy(*on_device, device, block->start - 1, 1), -EFAULT);
    EXPECT_EQ(copy(*queue, ours, ours, 1), -EINVAL);
    EXPECT_EQ(copy(*queue, UINT64_MAX, ours, 1), -EFAULT);
}

TEST_F(synapse_copies, reach_imports)
{
    allocation other = allocate(some);
    int fd           = -1;
    const uint64_t size =
        (some + dmabuf_page() - 1) / dmabuf_page() * dmabuf_page();
    ASSERT_EQ(dev->export_dmabuf(other.address(), 0, size, fd), 0);
    registration import;
    ASSERT_EQ(dev->import_dmabuf(fd, size, import), 0);
    close(fd);
    const uint64_t there = import.address();
    EXPECT_NE(there, other.address());

    fill_pattern(host.data(), some, 3);
    auto to_host = make_queue(dma_direction::device_to_host);
    EXPECT_EQ(copy(*queue, there, host.address(), some), 0);
    EXPECT_EQ(copy(*queue, memory.address(), there, some), 0);
    std::memset(host.data(), 0, some);
    EXPECT_EQ(copy(*to_host, host.address(), memory.address(), some), 0);
    EXPECT_TRUE(has_pattern(host.data(), some, 3));
    EXPECT_EQ(copy(*queue, there, host.address(), size + 1), -EFAULT);
    EXPECT_EQ(import.close(), 0);
    EXPECT_EQ(copy(*queue, there, host.address(), 1), -EFAULT);
}

TEST_F(synapse_memory_test, is_in_the_framework_s_block_and_goes_back)
{
    const auto block = dev->application_block();
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(dev->capabilities().memory_bytes, block->size);
    uint64_t first;
    {
        allocation memory = allocate(some);
        first             = memory.address();
        EXPECT_EQ(first % 4096, 0u);
        EXPECT_GE(first, block->start);
        EXPECT_LE(first + some, block->start + block->size);
    }
    EXPECT_EQ(allocate(some).address(), first);
}

TEST_F(synapse_memory_test, of_the_framework_can_be_exported)
{
    uint64_t tensor = 0;
    ASSERT_EQ(synapse().synDeviceMalloc(0, 1 << 20, 0, 0, &tensor), synSuccess);
    const uint64_t page = dmabuf_page();
    const auto block    = dev->application_block();
    int fd              = -1;
    EXPECT_EQ(dev->export_dmabuf(block->start,
                                 (tensor - block->start) / page * page, 1 << 20,
                                 fd),
              0);
    EXPECT_EQ(dev->dmabuf_size(fd), 1 << 20);
    close(fd);
}

TEST_F(synapse_memory_test, of_the_application_is_not_mapped)
{
    std::vector<char> buffer(some);
    registration mapping;
    EXPECT_EQ(dev->register_host(buffer.data(), some, mapping), -EOPNOTSUPP);
    EXPECT_EQ(synapse().syn_stand_in_mappings(), 0u);
}

TEST_F(synapse_memory_test, of_the_application_is_mapped_if_it_may_be)
{
    adopt({.map_application_memory = true});
    std::vector<char> buffer(3 * 4096);
    {
        registration whole;
        registration part;
        registration beyond;
        ASSERT_EQ(dev->register_host(buffer.data(), 8192, whole), 0);
        /* SynapseAI does not count, so it is not asked. */
        ASSERT_EQ(dev->register_host(buffer.data() + 4096, 4096, part), 0);
        EXPECT_EQ(dev->register_host(buffer.data() + 4096, 8192, beyond),
                  -EOPNOTSUPP);
        EXPECT_EQ(synapse().syn_stand_in_mappings(), 1u);
        EXPECT_EQ(whole.close(), 0);
        EXPECT_EQ(synapse().syn_stand_in_mappings(), 1u);
        allocation memory = allocate(4096);
        auto queue        = make_queue(dma_direction::host_to_device);
        EXPECT_EQ(copy(*queue, memory.address(), part.address(), 4096), 0);
    }
    EXPECT_EQ(synapse().syn_stand_in_mappings(), 0u);

    /* What cannot be pinned would end the process, and what is SynapseAI's own
     * would be unmapped with ours. */
    registration mapping;
    void *none =
        mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(dev->register_host(none, 4096, mapping), -EFAULT);
    munmap(none, 4096);
    void *own = nullptr;
    ASSERT_EQ(synapse().synHostMalloc(0, 4096, 0, &own), synSuccess);
    EXPECT_EQ(dev->register_host(own, 4096, mapping), -EOPNOTSUPP);
    EXPECT_EQ(synapse().synHostFree(0, own, 0), synSuccess);
}

/* Events do not tell of a reset, and a thread that waits in SynapseAI keeps the
 * framework from anything. */
TEST_F(synapse_faults, a_released_device_ends_every_copy_once)
{
    pause(true);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(submit(), 0);
    }
    const ticket job = queue->oldest_ticket();
    synapse().syn_stand_in_reset();
    dma_completion done[4];
    EXPECT_EQ(queue->poll(done, 4), 0u);
    pause(false);
    ASSERT_EQ(synapse().synDestroy(), synSuccess);
    EXPECT_EQ(dev->query(job, 1'000'000), -ENODEV);
    EXPECT_EQ(queue->poll(done, 4), 3u);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(done[i].status, -ENODEV);
    }
    EXPECT_EQ(queue->poll(done, 4), 0u);
    EXPECT_TRUE(dev->is_lost());
    EXPECT_EQ(submit(1), -ENODEV);
    allocation more;
    EXPECT_EQ(dev->allocate(some, 0, more), -ENODEV);
}

TEST_F(synapse_faults, a_full_stream_is_tried_again)
{
    synapse().syn_stand_in_refuse_copies(1, synCbFull);
    EXPECT_EQ(submit(), -EAGAIN);
    EXPECT_EQ(copy(*queue, memory.address(), host.address(), some), 0);
    /* Nothing is over as long as the device is there. */
    synapse().syn_stand_in_refuse_copies(1, synFail);
    EXPECT_EQ(submit(), -EIO);
    EXPECT_EQ(copy(*queue, memory.address(), host.address(), some), 0);
    synapse().syn_stand_in_refuse_copies(1, synSynapseTerminated);
    EXPECT_EQ(submit(), -ENODEV);
    EXPECT_TRUE(dev->is_lost());
    /* Nothing is given back then. */
    (void)synapse().synDestroy();
}

/* It says synAllResourcesTaken (DeviceScal::createEvent). */
TEST_F(synapse_events, that_are_few_are_used_in_turn)
{
    constexpr unsigned few = 3;
    open(few);
    fill_pattern(host.data(), some, 1);
    EXPECT_EQ(fill(), few);
    ASSERT_EQ(copy(*queue, memory.address(), host.address(), some), 0);
    EXPECT_EQ(fill(), few);
    synapse().syn_stand_in_limit_events(SIZE_MAX);
    EXPECT_EQ(fill(), depth);
    EXPECT_EQ(fill(), depth);
    expect_arrived();
}

/* SynapseAI has one queue for each direction, in which ours stand behind the
 * framework's. */
TEST_F(synapse_copies, stand_behind_those_of_the_framework)
{
    constexpr unsigned many = 100; /* the card does not take so many */
    synStreamHandle stream  = nullptr;
    synEventHandle last     = nullptr;
    ASSERT_EQ(synapse().synStreamCreateGeneric(&stream, 0, 0), synSuccess);
    ASSERT_EQ(synapse().synEventCreate(&last, 0, 0), synSuccess);
    pinned_buffer theirs = pin(some);
    fill_pattern(theirs.data(), some, 1);
    fill_pattern(host.data(), some, 2);
    pause(true);
    for (unsigned i = 0; i < many; ++i) {
        ASSERT_EQ(synapse().synMemCopyAsync(stream, theirs.address(), some,
                                            memory.address(), HOST_TO_DRAM),
                  synSuccess);
    }
    ASSERT_EQ(synapse().synEventRecord(last, stream), synSuccess);
    ASSERT_EQ(submit(), 0);
    EXPECT_EQ(queue->wait(last_id, 1000), -EAGAIN);
    EXPECT_FALSE(dev->is_lost());
    pause(false);
    EXPECT_EQ(queue->wait(last_id, patience_us), 0);
    EXPECT_EQ(synapse().synEventQuery(last), synSuccess);
    EXPECT_EQ(collect_one(*queue), 0);
    expect_arrived();
}

/* Events tell nothing of a card in reset: its driver is asked when a job takes
 * long. */
TEST_F(synapse_faults, a_card_that_does_not_work_is_found_out)
{
    synapse().syn_stand_in_reset();
    ASSERT_EQ(submit(), 0);
    EXPECT_EQ(queue->wait(last_id, 1000), -EAGAIN);
    EXPECT_FALSE(dev->is_lost());
    hl().hlthunk_close(dev->fd()); /* the driver answers for it no more */
    EXPECT_EQ(queue->wait(last_id, patience_us), -ENODEV);
    EXPECT_EQ(collect_one(*queue), -ENODEV);
    EXPECT_TRUE(dev->is_lost());
    (void)synapse().synDestroy();
}
