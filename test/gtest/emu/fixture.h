/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The first card of the box, open for one test, and what tests ask of cards.
 */
#pragma once

#include "common/child.h"
#include "common/host_memory.h"
#include "common/raw_card.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::test {

using environment = std::vector<std::pair<std::string, std::string>>;

inline constexpr uint64_t mebi = uint64_t{1} << 20;

inline constexpr uint32_t pdma0 = shim::gaudi2_queue_pdma0;
inline constexpr uint32_t pdma1 = shim::gaudi2_queue_pdma1;
inline constexpr uint32_t edma0 = shim::gaudi2_queue_edma[0];

class emu : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_GE(card.fd(), 0) << "the card is taken"; }

    raw_card card;
};

/** A card that has to be free. */
class own_card : public raw_card {
public:
    explicit own_card(unsigned index = 0) : raw_card(index)
    {
        if (fd() < 0) {
            throw std::runtime_error("a card is taken that should be free");
        }
    }
};

/** A card, memory of it, and host memory that it reaches. */
struct used_card : own_card {
    explicit used_card(unsigned index = 0) : own_card(index) {}

    /** Begin to copy from the host. */
    uint64_t start_upload(uint32_t bytes)
    {
        return start({copy_chunk(pdma0, device, host, bytes)});
    }
    outcome upload(uint32_t bytes) { return wait(start_upload(bytes)); }

    char data[2 * 65536]{};
    const uint64_t device = allocate_mapped(mebi);
    const uint64_t host   = map_host(data, sizeof(data));
};

inline void close_card(raw_card &card)
{
    EXPECT_EQ(hl().hlthunk_close(card.fd()), 0);
    card.release();
}

/** What the shim does not use of the library. */
inline const emulator &api()
{
    return emulator::instance();
}

inline hlthunk_hw_ip_info info_of(int fd)
{
    hlthunk_hw_ip_info info{};
    EXPECT_EQ(hl().hlthunk_get_hw_ip_info(fd, &info), 0);
    return info;
}

inline hlthunk_dram_usage_info usage_of(int fd)
{
    hlthunk_dram_usage_info usage{};
    EXPECT_EQ(hl().hlthunk_get_dram_usage(fd, &usage), 0);
    return usage;
}

/** A chunk with a command buffer at an address. */
inline hl_cs_chunk chunk_at(uint32_t queue, uint64_t va, uint32_t size)
{
    hl_cs_chunk chunk{};
    chunk.cb_handle      = va;
    chunk.cb_size        = size;
    chunk.queue_index    = queue;
    chunk.cs_chunk_flags = shim::chunk_flag_user_cb;
    return chunk;
}

/** As hlthunk_open, by the bus id of a card. */
inline int open_card(unsigned index)
{
    return hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id(index).c_str());
}

/** Write a pattern to device memory. */
inline void mark(raw_card &card, uint64_t va, uint32_t size, uint64_t seed)
{
    std::vector<char> data(size);
    fill_pattern(data.data(), size, seed);
    ASSERT_EQ(card.write(va, data.data(), size), completed);
}

/** Whether it is there. */
inline ::testing::AssertionResult marked(raw_card &card, uint64_t va,
                                         uint32_t size, uint64_t seed)
{
    const guarded_buffer seen(size);
    const outcome read = card.read(seen.data(), va, size);
    return (read == completed) ? has_pattern(seen.data(), size, seed)
                               : ::testing::AssertionFailure() << read;
}

/** @return A dma-buf of mapped device memory, or -errno. */
inline int export_range(const raw_card &of, uint64_t va, uint64_t size,
                        uint64_t offset = 0,
                        uint32_t flags  = O_RDWR | O_CLOEXEC)
{
    return hl().hlthunk_device_mapped_memory_export_dmabuf_fd(of.fd(), va, size,
                                                              offset, flags);
}

/** @return 0 or -errno. */
inline int import(int device, int dmabuf, uint64_t size, uint64_t &va,
                  unsigned long request = shim::memory_ioctl,
                  uint32_t op           = shim::memory_op_import)
{
    hl_mem_args arguments{};
    arguments.in.fd     = static_cast<uint32_t>(dmabuf);
    arguments.in.length = size;
    arguments.in.op     = op;
    if (hl().hlthunk_sys_ioctl(device, request, &arguments) != 0) {
        return -errno;
    }
    va = arguments.out.device_virt_addr;
    return 0;
}

inline int unmap(const raw_card &of, uint64_t va)
{
    return hl().hlthunk_memory_unmap(of.fd(), va);
}

/** Ends a wait of forked children when it is opened, or destroyed. */
class gate {
public:
    gate() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
    ~gate() { open(); }
    gate(const gate &)            = delete;
    gate &operator=(const gate &) = delete;

    void open()
    {
        for (int &end : ends_) {
            if (end >= 0) {
                ::close(end);
            }
            end = -1;
        }
    }

    /** In the child. @return Whether it was opened. */
    bool wait()
    {
        char letter = 0;
        ::close(ends_[1]);
        return read(ends_[0], &letter, 1) == 0;
    }

private:
    int ends_[2] = {-1, -1};
};

/** Control node of a card; closed with the object. */
class control_node {
public:
    explicit control_node(unsigned index = 0)
        : fd_(hl().hlthunk_open_control(static_cast<int>(index), nullptr))
    {
        EXPECT_GE(fd_, 0);
    }
    ~control_node() { hl().hlthunk_close(fd_); }
    control_node(const control_node &)            = delete;
    control_node &operator=(const control_node &) = delete;

    [[nodiscard]] int fd() const { return fd_; }

    [[nodiscard]] hlthunk_open_stats_info stats() const
    {
        hlthunk_open_stats_info result{};
        EXPECT_EQ(hl().hlthunk_get_open_stats(fd_, &result), 0);
        return result;
    }

    /** Bytes of device memory that are in use. */
    [[nodiscard]] uint64_t used() const
    {
        const auto usage = usage_of(fd_);
        EXPECT_EQ(usage.ctx_dram_mem, 0u);
        return info_of(fd_).dram_size - usage.dram_free_mem;
    }

private:
    int fd_;
};

} // namespace gaudi::test
