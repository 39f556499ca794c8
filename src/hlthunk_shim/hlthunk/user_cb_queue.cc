/* SPDX-License-Identifier: BSD-3-Clause */
/* DMA queues of cards that run command buffers in the user's own memory
 * (Gaudi2). */
#include "hlthunk_shim/hlthunk/device.h"
#include "hlthunk_shim/hlthunk/lin_dma.h"
#include "hlthunk_shim/memory.h"
#include "hlthunk_shim/ordered_queue.h"
#include "util/warning.h"

#include <bit>
#include <cerrno>
#include <vector>

namespace gaudi::shim {

namespace {

/* One command buffer: the copies, behind those of an internal engine a barrier,
 * and the packet that starts it. */
constexpr size_t buffer_bytes     = 1024;
constexpr size_t packets_capacity = 40;
constexpr size_t upper_offset     = 992;
static_assert(packets_capacity * sizeof(lin_dma) + sizeof(nop) <= upper_offset);
static_assert(upper_offset + sizeof(cp_dma) <= buffer_bytes);

/* Command buffers that the card was given as one job. */
struct submission {
    ticket id;
    uint64_t end; /* of its buffers, counted without wrap */

    explicit operator bool() const { return id != ticket::none; }
};

/* Owns a pinned ring of command buffers. A copy takes one buffer per forty
 * packets, and all buffers of a copy go to the card in one submission. */
class user_cb_queue final : public ordered_queue<user_cb_queue, submission> {
public:
    user_cb_queue(submissions &to, dma_direction direction, uint32_t queue,
                  const dma_queue_options &options)
        : ordered_queue(options.depth), submissions_(to), direction_(direction),
          queue_index_(queue), max_packet_bytes_((options.max_packet_bytes != 0)
                                                     ? options.max_packet_bytes
                                                     : lin_dma_max_bytes)
    {
        chunks_.reserve(options.depth);
    }

    ~user_cb_queue() override
    {
        if (wait_all(close_timeout_us) != 0) {
            util::warn(
                "card %s still runs %u copies of a queue that goes away: its "
                "command buffers stay pinned",
                submissions_.to().bus_id().c_str(), running());
            ring_.abandon();
        }
    }

    /* Pin it, and note what the card is told of each buffer. @return 0 or
     * -errno. */
    int make_ring()
    {
        const int ret = pinned_buffer::create(submissions_.to(),
                                              depth() * buffer_bytes, ring_);
        if (ret != 0) {
            return ret;
        }
        ring_chunks_.resize(depth());
        for (size_t i = 0; i < ring_chunks_.size(); ++i) {
            const uint64_t va    = ring_.address() + i * buffer_bytes;
            hl_cs_chunk &chunk   = ring_chunks_[i];
            chunk.queue_index    = queue_index_;
            chunk.cs_chunk_flags = chunk_flag_user_cb;
            chunk.cb_handle      = va;
            if (direction_ == dma_direction::device_to_device) {
                chunk.cb_handle = va + upper_offset;
                chunk.cb_size   = sizeof(cp_dma);
            }
        }
        return 0;
    }

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &id_p) override
    {
        const uint64_t buffers = count_buffers(length);
        if (buffers > depth()) {
            return -EMSGSIZE;
        }
        if (is_full() || (buffer_ + buffers - released_ > depth())) {
            return -EAGAIN;
        }

        ticket given = ticket::none;
        if (buffers > 0) {
            const auto count    = static_cast<uint32_t>(buffers);
            hl_cs_chunk *chunks = (count == 1) ? &fill_buffer(dst, src, length)
                                               : fill_buffers(dst, src, length);
            const int ret       = submissions_.submit(chunks, count, given);
            if (ret != 0) {
                buffer_ -= buffers;
                return ret;
            }
        }
        id_p = add({given, buffer_}, cookie);
        return 0;
    }

    int look(const submission &oldest, uint32_t timeout_us)
    {
        const int ret = submissions_.collect(oldest.id, timeout_us);
        if (ret != 0) {
            released_ = oldest.end;
        }
        return ret;
    }

    [[nodiscard]] ticket name(const submission &of) const { return of.id; }

private:
    /* In a command buffer. */
    [[nodiscard]] lin_dma *packets_at(uint64_t buffer) const
    {
        return reinterpret_cast<lin_dma *>(
            ring_.data() + (buffer & (depth() - 1)) * buffer_bytes);
    }

    /* Write as much of a copy as fits into the next command buffer. */
    hl_cs_chunk &fill_buffer(uint64_t &dst, uint64_t &src, uint64_t &length)
    {
        lin_dma *packets   = packets_at(buffer_);
        const size_t index = buffer_++ & (depth() - 1);
        const size_t count = build_lin_dma(packets, packets_capacity,
                                           max_packet_bytes_, dst, src, length);
        const auto bytes   = static_cast<uint32_t>(count * sizeof(lin_dma));
        hl_cs_chunk &chunk = ring_chunks_[index];
        if (direction_ == dma_direction::device_to_device) {
            auto *last  = reinterpret_cast<nop *>(packets + count);
            auto *first = reinterpret_cast<cp_dma *>(
                reinterpret_cast<char *>(packets) + upper_offset);
            *last  = make_barrier();
            *first = make_cp_dma(chunk.cb_handle - upper_offset,
                                 bytes + uint32_t{sizeof(nop)});
        } else {
            chunk.cb_size = bytes;
        }
        return chunk;
    }

    /* All buffers of a copy that takes several. */
    hl_cs_chunk *fill_buffers(uint64_t dst, uint64_t src, uint64_t length)
    {
        chunks_.clear();
        while (length > 0) {
            chunks_.push_back(fill_buffer(dst, src, length));
        }
        return chunks_.data();
    }

    /* Command buffers that a copy takes. */
    uint64_t count_buffers(uint64_t length) const
    {
        if (length <= max_packet_bytes_) { /* most; divisions take longer */
            return (length > 0) ? 1 : 0;
        }
        const uint64_t packets =
            length / max_packet_bytes_ + (length % max_packet_bytes_ != 0);
        return (packets + packets_capacity - 1) / packets_capacity;
    }

    submissions &submissions_;
    const dma_direction direction_;
    const uint32_t queue_index_;
    const uint64_t max_packet_bytes_;
    pinned_buffer ring_;
    std::vector<hl_cs_chunk> ring_chunks_; /* one for each command buffer */
    std::vector<hl_cs_chunk> chunks_;      /* of a copy that takes several */
    uint64_t buffer_   = 0; /* next command buffer, counted without wrap */
    uint64_t released_ = 0; /* first command buffer still in use */
};

} // namespace

int device::make_queue(dma_direction direction,
                       const dma_queue_options &options,
                       std::unique_ptr<dma_queue> &queue_p)
{
    const queue_range &range = queues_[static_cast<size_t>(direction)];
    if (range.count == 0) {
        return -ENOTSUP;
    }
    if (!std::has_single_bit(options.depth) ||
        (options.depth > max_chunks_per_cs) ||
        (options.max_packet_bytes > lin_dma_max_bytes) ||
        (options.stream >= range.count)) {
        return -EINVAL;
    }
    auto queue = std::make_unique<user_cb_queue>(
        submissions_, direction, range.first + options.stream, options);
    const int ret = queue->make_ring();
    if (ret == 0) {
        queue_p = std::move(queue);
    }
    return ret;
}

} // namespace gaudi::shim
