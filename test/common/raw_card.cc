/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/raw_card.h"

#include <cerrno>
#include <cstring>
#include <ostream>
#include <stdexcept>

#include <sys/mman.h>

namespace gaudi::test {

namespace {

constexpr size_t ring_bytes = 4 << 20;

/* Calls with a 64-bit result say 0 for failure. */
uint64_t require(uint64_t value, const char *what)
{
    if (value == 0) {
        throw std::runtime_error(std::string(what) + ": " +
                                 std::strerror(errno));
    }
    return value;
}

/* A reset lasts for a few opens. */
int open_card(unsigned index, const shim::library &by)
{
    int fd = -EAGAIN;
    for (int i = 0; (i < 16) && (fd == -EAGAIN); ++i) {
        fd = by.hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id(index).c_str());
    }
    return fd;
}

bool is_edma(uint32_t queue)
{
    return queue >= shim::gaudi2_queue_edma[0];
}

} // namespace

std::ostream &operator<<(std::ostream &stream, const outcome &value)
{
    return stream << "{result " << value.result << ", status " << value.status
                  << "}";
}

raw_card::raw_card(unsigned index, const shim::library &by)
    : by_(by), fd_(open_card(index, by))
{}

raw_card::~raw_card()
{
    if (fd_ >= 0) {
        by_.hlthunk_close(fd_);
        /* Who opens it next is not to find out what happened to it. */
        (void)emulator::instance().hlthunk_emu_fault("reset=0");
    }
    if (ring_ != nullptr) {
        munmap(ring_, ring_bytes);
    }
}

hlthunk_emu_counters raw_card::counters() const
{
    hlthunk_emu_counters result{};
    if (emulator::instance().hlthunk_emu_get_counters(fd_, &result) != 0) {
        throw std::runtime_error("hlthunk_emu_get_counters");
    }
    return result;
}

void raw_card::pause(bool paused) const
{
    if (emulator::instance().hlthunk_emu_pause(fd_, paused) != 0) {
        throw std::runtime_error("hlthunk_emu_pause");
    }
}

uint64_t raw_card::allocate(uint64_t size) const
{
    return require(by_.hlthunk_device_memory_alloc(fd_, size, 0, false, true),
                   "hlthunk_device_memory_alloc");
}

uint64_t raw_card::map(uint64_t handle, uint64_t hint) const
{
    return require(by_.hlthunk_device_memory_map(fd_, handle, hint),
                   "hlthunk_device_memory_map");
}

uint64_t raw_card::map_host(void *data, uint64_t size) const
{
    return require(by_.hlthunk_host_memory_map(fd_, data, 0, size),
                   "hlthunk_host_memory_map");
}

uint64_t raw_card::add_command_buffer(const void *bytes, size_t size)
{
    if (ring_ == nullptr) {
        void *ring = mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (ring == MAP_FAILED) {
            throw std::runtime_error("no memory for command buffers");
        }
        ring_    = static_cast<char *>(ring);
        ring_va_ = map_host(ring_, ring_bytes);
    }
    if (next_ + size > ring_bytes) {
        next_ = 0;
    }
    const size_t offset = next_;
    std::memcpy(ring_ + offset, bytes, size);
    next_ = (next_ + size + 63) / 64 * 64;
    return ring_va_ + offset;
}

hl_cs_chunk raw_card::raw_chunk(uint32_t queue, const void *bytes,
                                uint32_t size)
{
    hl_cs_chunk chunk{};
    chunk.cb_handle      = add_command_buffer(bytes, size);
    chunk.cb_size        = size;
    chunk.queue_index    = queue;
    chunk.cs_chunk_flags = shim::chunk_flag_user_cb;
    return chunk;
}

hl_cs_chunk raw_card::copy_chunk(uint32_t queue,
                                 const std::vector<shim::lin_dma> &packets)
{
    const auto bytes =
        static_cast<uint32_t>(packets.size() * sizeof(shim::lin_dma));
    if (!is_edma(queue)) {
        return raw_chunk(queue, packets.data(), bytes);
    }
    const shim::cp_dma upper =
        shim::make_cp_dma(add_command_buffer(packets.data(), bytes), bytes);
    return raw_chunk(queue, &upper, sizeof(upper));
}

hl_cs_chunk raw_card::copy_chunk(uint32_t queue, uint64_t dst, uint64_t src,
                                 uint32_t bytes)
{
    return copy_chunk(queue, {shim::make_lin_dma(dst, src, bytes)});
}

int raw_card::submit(std::vector<hl_cs_chunk> chunks, uint64_t &seq_p) const
{
    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = chunks.data();
    in.num_chunks_execute = static_cast<uint32_t>(chunks.size());
    const int ret         = by_.hlthunk_command_submission(fd_, &in, &out);
    seq_p                 = out.seq;
    return ret;
}

uint64_t raw_card::start(const std::vector<hl_cs_chunk> &chunks) const
{
    uint64_t seq  = 0;
    const int ret = submit(chunks, seq);
    if (ret != 0) {
        throw std::runtime_error("hlthunk_command_submission: " +
                                 std::to_string(ret));
    }
    return seq;
}

outcome raw_card::wait(uint64_t seq, uint64_t timeout_us) const
{
    outcome seen{0, ~0u};
    seen.result = by_.hlthunk_wait_for_cs(fd_, seq, timeout_us, &seen.status);
    return seen;
}

outcome raw_card::copy(uint32_t queue, uint64_t dst, uint64_t src,
                       uint32_t bytes)
{
    return wait(start({copy_chunk(queue, dst, src, bytes)}));
}

outcome raw_card::write(uint64_t dst, const void *src, uint32_t bytes)
{
    const uint64_t va  = map_host(const_cast<void *>(src), bytes);
    const outcome seen = copy(shim::gaudi2_queue_pdma0, dst, va, bytes);
    by_.hlthunk_memory_unmap(fd_, va);
    return seen;
}

outcome raw_card::read(void *dst, uint64_t src, uint32_t bytes)
{
    const uint64_t va  = map_host(dst, bytes);
    const outcome seen = copy(shim::gaudi2_queue_pdma1, va, src, bytes);
    by_.hlthunk_memory_unmap(fd_, va);
    return seen;
}

} // namespace gaudi::test
