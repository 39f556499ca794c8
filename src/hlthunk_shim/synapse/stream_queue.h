/**
 * DMA queue of cards that SynapseAI has: a stream of the session, and events.
 *
 * Queues of one direction share a stream, in which SynapseAI keeps order.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/synapse/stream_card.h"

#include <vector>

namespace gaudi::shim {

class stream_queue final : public dma_queue {
public:
    /** As card::make_queue. */
    [[nodiscard]] static int create(const stream_card &on,
                                    dma_direction direction,
                                    const dma_queue_options &options,
                                    std::unique_ptr<dma_queue> &queue_p);
    ~stream_queue() override;

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
        job_event *event; /* nullptr for a copy of nothing */
        void *cookie;
        int status;
    };

    stream_queue(const stream_card &on, dma_direction direction,
                 event_ring &ring)
        : card_(on), stream_(on.session().stream(direction)), ring_(ring),
          jobs_(ring.events.size())
    {}

    job &at(uint64_t id) { return jobs_[id % jobs_.size()]; }
    const job &at(uint64_t id) const { return jobs_[id % jobs_.size()]; }
    int start(uint64_t dst, uint64_t src, uint64_t length, job_event *&event_p);
    bool reap();

    const stream_card &card_;
    const synStreamHandle stream_;
    event_ring &ring_;
    std::vector<job> jobs_;
    patience patience_;      /* with the oldest job */
    uint64_t next_      = 0; /* id of the next job */
    uint64_t reaped_    = 0; /* first job not known to have ended */
    uint64_t collected_ = 0; /* first job not yet handed to the caller */
};

} // namespace gaudi::shim
