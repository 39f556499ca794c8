/**
 * DMA queue of cards that run command buffers in the user's own memory
 * (Gaudi2).
 *
 * Owns a pinned ring of command buffers. A copy takes one buffer per forty
 * packets, and all buffers of a copy go to the card in one submission.
 */
#pragma once

#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/submissions.h"
#include "hlthunk_shim/memory.h"
#include "hlthunk_shim/ordered_queue.h"

#include <vector>

namespace gaudi::shim {

/** Command buffers that the card was given as one job. */
struct submission {
    ticket id;
    uint64_t end; /* of its buffers, counted without wrap */

    explicit operator bool() const { return id != ticket::none; }
};

class user_cb_queue final : public ordered_queue<user_cb_queue, submission> {
public:
    /** As card::make_queue.
     *  @param range  The driver's queues of that direction. */
    [[nodiscard]] static int create(submissions &to, dma_direction direction,
                                    const queue_range &range,
                                    const dma_queue_options &options,
                                    std::unique_ptr<dma_queue> &queue_p);
    ~user_cb_queue() override;

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &id_p) override;

private:
    friend ordered_queue;

    user_cb_queue(submissions &to, dma_direction direction, uint32_t queue,
                  const dma_queue_options &options);

    int look(const submission &oldest, uint32_t timeout_us);
    [[nodiscard]] ticket name(const submission &of) const { return of.id; }
    void prepare_ring();
    hl_cs_chunk &fill_buffer(uint64_t &dst, uint64_t &src, uint64_t &length);
    [[nodiscard]] uint64_t count_buffers(uint64_t length) const;

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

} // namespace gaudi::shim
