/**
 * DMA queue of cards that SynapseAI has: a stream of the session, and events.
 *
 * Queues of one direction share a stream, in which SynapseAI keeps order.
 */
#pragma once

#include "hlthunk_shim/ordered_queue.h"
#include "hlthunk_shim/synapse/stream_card.h"

namespace gaudi::shim {

class stream_queue final : public ordered_queue<stream_queue, job_event *> {
public:
    /** As card::make_queue. */
    [[nodiscard]] static int create(const stream_card &on,
                                    dma_direction direction,
                                    const dma_queue_options &options,
                                    std::unique_ptr<dma_queue> &queue_p);
    ~stream_queue() override;

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &id_p) override;

private:
    friend ordered_queue;

    stream_queue(const stream_card &on, dma_direction direction,
                 event_ring &ring)
        : ordered_queue(static_cast<unsigned>(ring.events.size())), card_(on),
          stream_(on.session().stream(direction)), ring_(ring)
    {}

    int look(job_event *oldest, uint32_t timeout_us);
    [[nodiscard]] ticket name(const job_event *of) const
    {
        return synapse_session::make_ticket(ring_, *of);
    }
    int start(uint64_t dst, uint64_t src, uint64_t length, job_event *&event_p);

    const stream_card &card_;
    const synStreamHandle stream_;
    event_ring &ring_;
    patience patience_;     /* with the oldest job */
    uint64_t pause_us_ = 0; /* of the last sleep until that ends */
};

} // namespace gaudi::shim
