/**
 * DMA queue of cards that run command buffers in the user's own memory
 * (Gaudi2).
 *
 * Owns a pinned ring of command buffers. A copy takes one buffer per forty
 * packets, and all buffers of a copy go to the card in one submission.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/submissions.h"
#include "hlthunk_shim/memory.h"

#include <vector>

namespace gaudi::shim {

class user_cb_queue final : public dma_queue {
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
    unsigned poll(dma_completion *completions, unsigned max) override;
    int wait(uint64_t id, uint64_t timeout_us) override;
    int wait_all(uint64_t timeout_us) override;
    unsigned outstanding() const override
    {
        return static_cast<unsigned>(next_ - collected_);
    }
    ticket oldest_ticket() const override;

private:
    struct job {
        ticket id; /* none for a copy of nothing */
        void *cookie;
        unsigned buffers;
        int status;
    };

    user_cb_queue(submissions &to, dma_direction direction, uint32_t queue,
                  const dma_queue_options &options);

    job &at(uint64_t id) { return jobs_[id & (jobs_.size() - 1)]; }
    const job &at(uint64_t id) const { return jobs_[id & (jobs_.size() - 1)]; }
    bool reap(uint32_t timeout_us);
    void prepare_ring();
    hl_cs_chunk &fill_buffer(uint64_t &dst, uint64_t &src, uint64_t &length);
    [[nodiscard]] uint64_t count_buffers(uint64_t length) const;

    submissions &submissions_;
    const dma_direction direction_;
    const uint32_t queue_index_;
    const uint64_t max_packet_bytes_;
    pinned_buffer ring_;
    std::vector<job> jobs_;                /* ring; size is a power of two */
    std::vector<hl_cs_chunk> ring_chunks_; /* one for each command buffer */
    std::vector<hl_cs_chunk> chunks_;      /* of a copy that takes several */
    uint64_t next_      = 0;               /* id of the next job */
    uint64_t reaped_    = 0; /* first job not known to have ended */
    uint64_t collected_ = 0; /* first job not yet handed to the caller */
    uint64_t buffer_    = 0; /* next command buffer, counted without wrap */
    uint64_t released_  = 0; /* first command buffer still in use */
};

} // namespace gaudi::shim
