#include "uct/gaudi/base/channel.h"

#include "uct/gaudi/base/status.h"

#include <cstring>

namespace gaudi::base {

namespace {

/* Longer than the driver lets a job run. */
constexpr uint64_t drain_timeout_us = 60'000'000;

} // namespace

channel::~channel()
{
    for (const auto &queue : queues_) {
        if ((queue != nullptr) && (queue->wait_all(drain_timeout_us) != 0)) {
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

ucs_status_t channel::create(card &owner, size_t chunk_bytes, unsigned chunks,
                             unsigned depth,
                             std::unique_ptr<channel> &channel_p)
{
    std::unique_ptr<channel> created(new channel(owner));
    created->chunk_bytes_ = chunk_bytes;

    int ret = shim::pinned_buffer::create(owner.device(), chunk_bytes * chunks,
                                          created->staging_);
    for (size_t i = 0; (ret == 0) && (i < directions); ++i) {
        shim::dma_queue_options options;
        options.depth = depth;
        ret           = shim::make_dma_queue(owner.device(),
                                             static_cast<shim::dma_direction>(i), options,
                                             created->queues_[i]);
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
    created->segments_.resize(directions * depth);
    created->free_segments_.reserve(created->segments_.size());
    for (segment &record : created->segments_) {
        created->give_segment(&record);
    }
    channel_p = std::move(created);
    return UCS_OK;
}

} // namespace gaudi::base
