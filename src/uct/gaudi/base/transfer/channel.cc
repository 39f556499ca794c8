#include "uct/gaudi/base/transfer/channel.h"

#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

namespace {

/* Longer than the driver lets a job run. */
constexpr uint64_t drain_timeout_us = 60'000'000;

} // namespace

channel::~channel()
{
    for (const auto &queue : queues_) {
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
    if (shared_.size() <= user.slot()) {
        shared_.resize(user.slot() + 1);
    }
    shim::mapping &entry = shared_[user.slot()];
    return (entry.va() != 0)
               ? 0
               : shim::mapping::map_host(user.device(), staging_.data(),
                                         staging_.size(), entry);
}

void channel::abandon_staging()
{
    for (shim::mapping &entry : shared_) {
        entry.release();
    }
    staging_.abandon();
}

int channel::make_lanes(uint64_t window)
{
    for (size_t i = 0; i < directions; ++i) {
        const auto direction = static_cast<shim::dma_direction>(i);
        const unsigned streams =
            std::max(1u, shim::dma_streams(owner_.device(), direction));
        shim::dma_queue_options options;
        for (const copies which : {copies::of_long, copies::of_short}) {
            dma_lane &made = lane(direction, which);
            if (options.stream < streams) {
                const int ret =
                    shim::make_dma_queue(owner_.device(), direction, options,
                                         queues_.emplace_back());
                if (ret != 0) {
                    queues_.pop_back();
                    return ret;
                }
                ++options.stream;
            }
            made.home   = this;
            made.queue  = queues_.back().get();
            made.window = UINT64_MAX;
            ucs_list_head_init(&made.waiting);
        }
        lane(direction, copies::of_long).window = window;
    }
    return 0;
}

ucs_status_t channel::create(card &owner, size_t chunk_bytes, unsigned chunks,
                             uint64_t window,
                             std::unique_ptr<channel> &channel_p)
{
    std::unique_ptr<channel> created(new channel(owner));
    created->chunk_bytes_ = chunk_bytes;

    int ret = shim::pinned_buffer::create(owner.device(), chunk_bytes * chunks,
                                          created->staging_);
    if (ret == 0) {
        ret = created->make_lanes(window);
    }
    if (ret != 0) {
        ucs_error("%s: cannot create DMA queues: %s", owner.name().c_str(),
                  std::strerror(-ret));
        return to_status(ret);
    }

    created->free_chunks_.reserve(chunks);
    for (unsigned i = chunks; i > 0; --i) {
        created->give_chunk(static_cast<int>(i - 1));
    }
    created->segments_.resize(created->queues_.size() *
                              shim::dma_queue_options().depth);
    created->free_segments_.reserve(created->segments_.size());
    for (segment &record : created->segments_) {
        created->give_segment(&record);
    }
    channel_p = std::move(created);
    return UCS_OK;
}

} // namespace gaudi::base
