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

/* Owns a pinned ring of command buffers, one for each copy. Forty packets are
 * 160 GiB, more than any card has. */
class user_cb_queue final : public ordered_queue<user_cb_queue, ticket> {
public:
    user_cb_queue(submissions &to, dma_direction direction, uint32_t queue,
                  const dma_queue_options &options)
        : ordered_queue(options.depth), submissions_(to), direction_(direction),
          queue_index_(queue), max_packet_bytes_((options.max_packet_bytes != 0)
                                                     ? options.max_packet_bytes
                                                     : lin_dma_max_bytes)
    {}

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
        if (length > packets_capacity * max_packet_bytes_) {
            return -EMSGSIZE;
        }
        if (is_full()) {
            return -EAGAIN;
        }
        ticket given = ticket::none;
        if (length > 0) {
            const int ret =
                submissions_.submit(fill_buffer(dst, src, length), 1, given);
            if (ret != 0) {
                return ret;
            }
        }
        id_p = add(given, cookie);
        return 0;
    }

    int look(ticket oldest, uint32_t timeout_us)
    {
        return submissions_.collect(oldest, timeout_us);
    }

    [[nodiscard]] ticket name(ticket of) const { return of; }

private:
    /* Write a copy into the next command buffer, which a copy that has been
     * collected has left. */
    hl_cs_chunk *fill_buffer(uint64_t dst, uint64_t src, uint64_t length)
    {
        const size_t index = next_id() & (depth() - 1);
        hl_cs_chunk &chunk = ring_chunks_[index];
        char *const buffer = ring_.data() + index * buffer_bytes;
        auto *packets      = reinterpret_cast<lin_dma *>(buffer);
        const size_t count = build_lin_dma(packets, packets_capacity,
                                           max_packet_bytes_, dst, src, length);
        const auto bytes   = static_cast<uint32_t>(count * sizeof(lin_dma));
        if (direction_ == dma_direction::device_to_device) {
            auto *last  = reinterpret_cast<nop *>(packets + count);
            auto *first = reinterpret_cast<cp_dma *>(buffer + upper_offset);
            *last       = make_barrier();
            *first      = make_cp_dma(chunk.cb_handle - upper_offset,
                                      bytes + uint32_t{sizeof(nop)});
        } else {
            chunk.cb_size = bytes;
        }
        return &chunk;
    }

    submissions &submissions_;
    const dma_direction direction_;
    const uint32_t queue_index_;
    const uint64_t max_packet_bytes_;
    pinned_buffer ring_;
    std::vector<hl_cs_chunk> ring_chunks_; /* one for each command buffer */
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
