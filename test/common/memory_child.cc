/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/memory_child.h"

#include "util/other_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

/* Argument by environment: the bytes. */
GAUDI_CHILD(has_memory)
{
    const size_t bytes = std::strtoull(std::getenv("BYTES"), nullptr, 10);
    void *memory       = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GAUDI_CHILD_REQUIRE(memory != MAP_FAILED);
    tell_parent(std::to_string(reinterpret_cast<uintptr_t>(memory)));
    wait_for_parent();
    return 0;
}

std::unique_ptr<memory_child> memory_child::create(size_t bytes)
{
    child_options options;
    options.environment = {{"BYTES", std::to_string(bytes)}};
    auto child = std::make_unique<child_process>("has_memory", options);
    const uint64_t first =
        std::strtoull(child->read_line().c_str(), nullptr, 10);
    const int pidfd =
        util::open_pidfd(static_cast<uint32_t>(child->pid())).release();
    EXPECT_NE(0u, first);
    EXPECT_GE(pidfd, 0);
    return std::unique_ptr<memory_child>(
        new memory_child(std::move(child), pidfd, first, bytes));
}

memory_child::memory_child(std::unique_ptr<child_process> child, int pidfd,
                           uint64_t first, size_t bytes)
    : start(first), size(bytes), child_(std::move(child)), pidfd_(pidfd),
      file_(open(("/proc/" + std::to_string(child_->pid()) + "/mem").c_str(),
                 O_RDWR | O_CLOEXEC)),
      memory_(child_->pid(), pidfd)
{
    EXPECT_GE(file_, 0);
}

memory_child::~memory_child()
{
    close(file_);
    close(pidfd_);
}

void memory_child::read(void *data, size_t offset, size_t length) const
{
    EXPECT_EQ(static_cast<ssize_t>(length),
              pread(file_, data, length, static_cast<off_t>(start + offset)));
}

void memory_child::write(const void *data, size_t offset, size_t length) const
{
    EXPECT_EQ(static_cast<ssize_t>(length),
              pwrite(file_, data, length, static_cast<off_t>(start + offset)));
}

void memory_child::kill()
{
    child_->kill(SIGKILL);
    EXPECT_EQ(SIGKILL, child_->wait().signal);
}

} // namespace gaudi::test
