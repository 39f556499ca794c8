#include "hlthunk_shim/synapse/stream_queue.h"

#include "util/warning.h"

#include <algorithm>
#include <cerrno>

namespace gaudi::shim {

namespace {

/* More than anybody waits, and clear of the clock's end. */
constexpr uint64_t longest_wait_us = uint64_t{1} << 50;
/* Polls before a wait sleeps. */
constexpr unsigned wait_polls = 64;
/* How long a dying queue waits for the card. */
constexpr uint64_t close_timeout_us = 60'000'000;

} // namespace

int stream_queue::create(const stream_card &on, dma_direction direction,
                         const dma_queue_options &options,
                         std::unique_ptr<dma_queue> &queue_p)
{
    if (options.stream != 0) {
        return -EINVAL;
    }
    event_ring *ring = nullptr;
    const int ret    = on.session().take_ring(options.depth, ring);
    if (ret == 0) {
        queue_p.reset(new stream_queue(on, direction, *ring));
    }
    return ret;
}

stream_queue::~stream_queue()
{
    if (wait_all(close_timeout_us) == 0) {
        card_.session().return_ring(ring_);
    } else {
        util::warn("card %s still runs %u copies of a queue that goes away",
                   card_.bus_id().c_str(),
                   static_cast<unsigned>(next_ - reaped_));
    }
}

/* Have SynapseAI copy, and note in an event when it has done so. */
int stream_queue::start(uint64_t dst, uint64_t src, uint64_t length,
                        job_event *&event_p)
{
    if (card_.is_lost()) {
        return -ENODEV;
    }
    synDmaDir direction{};
    int ret = card_.find_direction(dst, src, length, direction);
    if (ret != 0) {
        return ret;
    }
    const synapse_functions &api = card_.session().api();
    ret =
        card_.judge(api.synMemCopyAsync(stream_, src, length, dst, direction));
    if (ret != 0) {
        return ret;
    }
    job_event &event = ring_.next();
    event.job.store(++ring_.jobs, std::memory_order_release);
    event_p = &event;
    if (card_.judge(api.synEventRecord(event.event, stream_)) != 0) {
        /* The copy runs, and nothing will tell of its end. */
        card_.end();
    }
    return 0;
}

int stream_queue::submit(uint64_t dst, uint64_t src, uint64_t length,
                         void *cookie, uint64_t &id_p)
{
    if (next_ - collected_ == jobs_.size()) {
        return -EAGAIN;
    }
    job_event *event = nullptr;
    if (length > 0) {
        const int ret = start(dst, src, length, event);
        if (ret != 0) {
            return ret;
        }
    }
    at(next_) = {event, cookie, 0};
    id_p      = next_++;
    return 0;
}

/* Look at the oldest running job; true when it has ended. */
bool stream_queue::reap()
{
    job &oldest = at(reaped_);
    if (oldest.event != nullptr) {
        int ret = card_.look(*oldest.event);
        if ((ret == 0) && card_.is_hopeless(patience_)) {
            ret = -ENODEV;
        }
        if (ret == 0) {
            return false;
        }
        patience_.restore();
        oldest.event->job.store(0, std::memory_order_release);
        oldest.status = (ret == 1) ? 0 : ret;
    }
    ++reaped_;
    return true;
}

unsigned stream_queue::poll(dma_completion *completions, unsigned max)
{
    unsigned count = 0;
    while ((count < max) && (collected_ != next_)) {
        if ((collected_ == reaped_) && !reap()) {
            break;
        }
        const job &ended     = at(collected_++);
        completions[count++] = {ended.cookie, ended.status};
    }
    return count;
}

ticket stream_queue::oldest_ticket() const
{
    if ((collected_ != reaped_) || (reaped_ == next_)) {
        return ticket::none;
    }
    const job_event *event = at(reaped_).event;
    return (event != nullptr) ? synapse_session::make_ticket(ring_, *event)
                              : ticket::none;
}

int stream_queue::wait(uint64_t id, uint64_t timeout_us)
{
    using clock       = patience::clock;
    unsigned polls    = 0;
    uint64_t pause_us = 0;
    clock::time_point deadline;

    while (reaped_ <= id) {
        if (reap()) {
            continue;
        }
        const auto now = clock::now();
        if (polls++ == 0) {
            deadline = now + std::chrono::microseconds(
                                 std::min(timeout_us, longest_wait_us));
        } else if (now >= deadline) {
            return -EAGAIN;
        }
        if (polls > wait_polls) {
            sleep_longer(pause_us);
        }
    }
    return at(id).status;
}

int stream_queue::wait_all(uint64_t timeout_us)
{
    if (reaped_ == next_) {
        return 0;
    }
    /* How the copies ended is for whoever collects them. */
    return (wait(next_ - 1, timeout_us) == -EAGAIN) ? -EAGAIN : 0;
}

} // namespace gaudi::shim
