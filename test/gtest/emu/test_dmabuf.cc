/* SPDX-License-Identifier: BSD-3-Clause */
/* Exporting device memory as a dma-buf. */
#include "gtest/emu/fixture.h"

#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

class emu_dmabuf : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        handle = card.allocate(size);
        va     = card.map(handle);
    }

    const uint64_t size = 2 * device_page();
    uint64_t handle     = 0;
    uint64_t va         = 0;
};

TEST_F(emu_dmabuf, other_flags_are_refused)
{
    for (uint32_t other :
         {0u, uint32_t{O_RDWR}, uint32_t{O_CLOEXEC}, uint32_t{O_RDONLY},
          uint32_t{O_RDWR | O_CLOEXEC | O_NONBLOCK}}) {
        EXPECT_EQ(export_range(card, va, size, 0, other), -EINVAL) << other;
    }
}

TEST_F(emu_dmabuf, ranges_must_be_pages_inside_the_mapping)
{
    EXPECT_EQ(export_range(card, va, 0, 0), -EINVAL);
    EXPECT_EQ(export_range(card, va, 1, 0), -EINVAL);
    EXPECT_EQ(export_range(card, va, 4095, 0), -EINVAL);
    EXPECT_EQ(export_range(card, va, 4096, 1), -EINVAL);
    EXPECT_EQ(export_range(card, va, size + 4096, 0), -EINVAL);
    EXPECT_EQ(export_range(card, va, size, 4096), -EINVAL);
    EXPECT_EQ(export_range(card, va, 4096, size), -EINVAL);
    EXPECT_EQ(export_range(card, va, 4096, size + 4096), -EINVAL);
    EXPECT_EQ(export_range(card, va, UINT64_MAX - 4095, 4096), -EINVAL);
    EXPECT_EQ(unmap(card, va), 0) << "a failed export holds nothing";
}

TEST_F(emu_dmabuf, the_address_is_that_of_the_mapping)
{
    EXPECT_EQ(export_range(card, va + 4096, 4096, 0), -EINVAL)
        << "an interior address goes into the offset";
    EXPECT_EQ(export_range(card, 0, 4096, 0), -EINVAL);
    char data[4096];
    const uint64_t host = card.map_host(data, sizeof(data));
    EXPECT_EQ(export_range(card, host, 4096, 0), -EINVAL) << "host memory";
    EXPECT_EQ(unmap(card, va), 0);
    EXPECT_EQ(export_range(card, va, 4096, 0), -EINVAL) << "unmapped";
}

TEST_F(emu_dmabuf, every_export_is_a_new_descriptor)
{
    std::vector<int> fds;
    for (int i = 0; i < 5; ++i) {
        const int fd = export_range(card, va, size, 0);
        ASSERT_GE(fd, 0);
        EXPECT_THAT(fds, ::testing::Not(::testing::Contains(fd)));
        fds.push_back(fd);
    }
    while (!fds.empty()) {
        EXPECT_EQ(unmap(card, va), -EINVAL) << fds.size() << " are alive";
        close(fds.back());
        fds.pop_back();
    }
    EXPECT_EQ(unmap(card, va), 0);
}

TEST_F(emu_dmabuf, unmap_is_refused_while_exported)
{
    const int fd = export_range(card, va, 4096, 0);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(unmap(card, va), -EINVAL);
    EXPECT_EQ(hl().hlthunk_device_memory_free(card.fd(), handle), -EINVAL);
    EXPECT_EQ(card.copy(edma0, va, va + 4096, 4096), completed)
        << "it stays usable";

    close(fd);
    EXPECT_EQ(unmap(card, va), 0);
    EXPECT_EQ(hl().hlthunk_device_memory_free(card.fd(), handle), 0);
}

TEST_F(emu_dmabuf, a_duplicate_keeps_the_export_alive)
{
    const int fd   = export_range(card, va, 4096, 0);
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ASSERT_GE(copy, 0);
    close(fd);
    EXPECT_EQ(unmap(card, va), -EINVAL);
    close(copy);
    EXPECT_EQ(unmap(card, va), 0);
}

TEST_F(emu_dmabuf, the_cpu_cannot_map_it)
{
    const int fd = export_range(card, va, 4096, 0);
    ASSERT_GE(fd, 0);
    for (int kind : {MAP_SHARED, MAP_PRIVATE}) {
        for (int access : {PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE}) {
            EXPECT_EQ(mmap(nullptr, 4096, access, kind, fd, 0), MAP_FAILED);
        }
    }
    close(fd);
}

} // namespace
