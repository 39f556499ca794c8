/* SPDX-License-Identifier: BSD-3-Clause */
/* DMA queues of cards that SynapseAI has: a stream of the session, and events.
 * Queues of one direction share a stream, in which SynapseAI keeps order. */
#include "hlthunk_shim/ordered_queue.h"
#include "hlthunk_shim/synapse/synapse_card.h"
#include "util/warning.h"

#include <bit>
#include <cerrno>

namespace gaudi::shim {

namespace {

class stream_queue final : public ordered_queue<stream_queue, job_event *> {
public:
    stream_queue(const synapse_card &on, dma_direction direction,
                 event_ring &ring)
        : ordered_queue(static_cast<unsigned>(ring.events.size())), card_(on),
          stream_(on.session().stream(direction)), ring_(ring)
    {}

    ~stream_queue() override
    {
        if (wait_all(close_timeout_us) == 0) {
            card_.session().return_ring(ring_);
        } else {
            util::warn("card %s still runs %u copies of a queue that goes away",
                       card_.bus_id().c_str(), running());
        }
    }

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &id_p) override
    {
        if (is_full()) {
            return -EAGAIN;
        }
        job_event *event = nullptr;
        if (length > 0) {
            const int ret = start(dst, src, length, event);
            if (ret != 0) {
                return ret;
            }
        }
        id_p = add(event, cookie);
        return 0;
    }

    int look(job_event *oldest, uint32_t timeout_us)
    {
        if (timeout_us > 0) {
            sleep_longer(pause_us_);
        }
        int ret = card_.look(*oldest);
        if ((ret == 0) && card_.is_hopeless(patience_)) {
            ret = -ENODEV;
        }
        if (ret != 0) {
            patience_.restore();
            pause_us_ = 0;
            oldest->job.store(0, std::memory_order_release);
        }
        return ret;
    }

    [[nodiscard]] ticket name(const job_event *of) const
    {
        return synapse_session::make_ticket(ring_, *of);
    }

private:
    /* Have SynapseAI copy, and note in an event when it has done so. */
    int start(uint64_t dst, uint64_t src, uint64_t length, job_event *&event_p)
    {
        if (card_.is_lost()) {
            return -ENODEV;
        }
        synDmaDir direction{};
        int ret = card_.find_direction(dst, src, length, direction);
        if (ret != 0) {
            return ret;
        }
        const synapse_session &session = card_.session();
        const synapse_functions &api   = session.api();
        const synStatus status         = session.find_free(ring_, event_p);
        if (status == synAllResourcesTaken) {
            return -EAGAIN;
        }
        ret = (status == synSuccess)
                  ? card_.judge(api.synMemCopyAsync(stream_, src, length, dst,
                                                    direction))
                  : card_.judge(status);
        if (ret != 0) {
            return ret;
        }
        ring_.take(*event_p);
        if (card_.judge(api.synEventRecord(event_p->event, stream_)) != 0) {
            /* The copy runs, and nothing will tell of its end. */
            card_.end();
        }
        return 0;
    }

    const synapse_card &card_;
    const synStreamHandle stream_;
    event_ring &ring_;
    patience patience_;     /* with the oldest job */
    uint64_t pause_us_ = 0; /* of the last sleep until that ends */
};

} // namespace

int synapse_card::make_queue(dma_direction direction,
                             const dma_queue_options &options,
                             std::unique_ptr<dma_queue> &queue_p)
{
    if ((options.stream != 0) || !std::has_single_bit(options.depth)) {
        return -EINVAL;
    }
    event_ring *ring = nullptr;
    const int ret    = session_->take_ring(options.depth, ring);
    if (ret == 0) {
        queue_p = std::make_unique<stream_queue>(*this, direction, *ring);
    }
    return ret;
}

} // namespace gaudi::shim
