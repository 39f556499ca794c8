#include "uct/gaudi/base/transfer/channel.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

ucs_status_t work_queue::report_refusal(size_t length, int result) const
{
    const card &owner = home->owner();
    const auto level  = owner.failure_level();
    ucs_log(level, "%s: cannot submit a copy of %zu bytes: %s",
            owner.name().c_str(), length, std::strerror(-result));
    return to_status(result);
}

ucs_status_t work_queue::report_failure(size_t length, int result) const
{
    const card &owner = home->owner();
    const auto level  = owner.failure_level();
    ucs_log(level, "%s: a DMA copy of %zu bytes failed: %s",
            owner.name().c_str(), length, std::strerror(-result));
    return to_status(result);
}

void work_queue::sleep(uint32_t longest_us) const
{
    const shim::ticket oldest = dma->oldest_ticket();
    if (oldest != shim::ticket::none) {
        (void)home->owner().device().query(oldest, longest_us);
    }
}

channel::~channel()
{
    for (const auto &queue : dma_queues_) {
        if (queue->wait_all(drain_timeout_us) != 0) {
            ucs_warn("%s: DMA jobs do not end: their staging memory stays "
                     "pinned",
                     owner_.name().c_str());
            abandon_staging();
            return;
        }
    }
}

int channel::share_staging(const card &user)
{
    if (&user == &owner_) {
        return 0;
    }
    if (shared_.size() <= user.place()) {
        shared_.resize(user.place() + 1);
    }
    shim::registration &entry = shared_[user.place()];
    return (entry.address() != 0)
               ? 0
               : user.device().register_staging(staging_.data(),
                                                staging_.size(), entry);
}

void channel::abandon_staging()
{
    for (shim::registration &entry : shared_) {
        entry.release();
    }
    staging_.abandon();
}

bool channel::arm_for_room(wakeup_event &event) const
{
    if (std::any_of(
            dma_queues_.begin(), dma_queues_.end(),
            [](const auto &queue) { return queue->outstanding() > 0; })) {
        return true;
    }
    const shim::ticket job = owner_.device().blocking_ticket();
    if (job == shim::ticket::none) {
        return false;
    }
    event.signal_after(owner_.device(), job);
    return true;
}

int channel::make_queues(uint64_t window)
{
    const shim::capabilities &known = owner_.device().capabilities();
    for (size_t i = 0; i < shim::dma_directions; ++i) {
        const auto direction   = static_cast<shim::dma_direction>(i);
        const unsigned streams = known.streams[i];
        shim::dma_queue_options options;
        options.depth = known.copies_in_flight;
        for (const copies which : {of_long, of_short}) {
            work_queue &made = queue(direction, which);
            if (options.stream < streams) {
                const int ret = owner_.device().make_queue(
                    direction, options, dma_queues_.emplace_back());
                if (ret != 0) {
                    dma_queues_.pop_back();
                    return ret;
                }
                ++options.stream;
            }
            made.home      = this;
            made.direction = direction;
            made.dma       = (streams > 0) ? dma_queues_.back().get() : nullptr;
            made.window    = UINT64_MAX;
            ucs_list_head_init(&made.waiting);
        }
        queue(direction, of_long).window = window;
    }
    return 0;
}

ucs_status_t channel::create(card &owner, const transfer_options &options,
                             copy_counts &counts,
                             std::unique_ptr<channel> &channel_p)
{
    std::unique_ptr<channel> created(
        new channel(owner, options, counts.of(owner.name())));
    const size_t chunk_bytes = options.chunk_bytes;

    int ret = shim::pinned_buffer::create(
        owner.device(), chunk_bytes * options.chunks + scratch_bytes,
        created->staging_);
    if (ret == 0) {
        ret = created->make_queues(uint64_t{options.piece_bytes} *
                                   options.pieces);
    }
    if (ret != 0) {
        ucs_error("%s: cannot create DMA queues: %s", owner.name().c_str(),
                  std::strerror(-ret));
        return to_status(ret);
    }

    /* From the last one on, so that the first is taken first. */
    created->chunks_.resize(options.chunks);
    for (size_t i = options.chunks; i > 0; --i) {
        const size_t at     = (i - 1) * chunk_bytes;
        staging_chunk &made = created->chunks_[i - 1];
        made                = {created.get(), created->staging_.data() + at,
                               created->staging_.address() + at, nullptr};
        give_back()(&made);
    }
    created->jobs_.resize(created->dma_queues_.size() *
                          owner.device().capabilities().copies_in_flight);
    for (dma_job &record : created->jobs_) {
        record.home = created.get();
        give_back()(&record);
    }
    channel_p = std::move(created);
    return UCS_OK;
}

ucs_status_t channel_set::add(card &owner, channel *&channel_p)
{
    if (owner.place() >= by_place_.size()) {
        by_place_.resize(owner.place() + 1);
    }
    all_.reserve(all_.size() + 1);
    std::unique_ptr<channel> made;
    const ucs_status_t status =
        channel::create(owner, options_, *counts_, made);
    if (status == UCS_OK) {
        channel_p = by_place_[owner.place()] = made.get();
        all_.push_back(std::move(made));
    }
    return status;
}

} // namespace gaudi::base
