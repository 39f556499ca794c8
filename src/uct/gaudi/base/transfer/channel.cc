/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/channel.h"

#include "util/locks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

ucs_status_t work_queue::report_refusal(size_t length, int result) const
{
    result           = home->blame(result);
    const auto level = home->failure_level(result);
    ucs_log(level, "%s: cannot submit a copy of %zu bytes: %s", home->name(),
            length, std::strerror(-result));
    return to_status(result);
}

ucs_status_t work_queue::report_failure(size_t length, int result) const
{
    result           = home->blame(result);
    const auto level = home->failure_level(result);
    ucs_log(level, "%s: a DMA copy of %zu bytes failed: %s", home->name(),
            length, std::strerror(-result));
    return to_status(result);
}

void channel::sleep(shim::dma_queue &queue, uint32_t longest_us) const
{
    if (!is_of_card()) {
        others_->wait_for_oldest(longest_us);
        return;
    }
    if (ports_ != nullptr) { /* no call of a driver tells */
        util::nap();
        return;
    }
    const shim::ticket oldest = queue.oldest_ticket();
    if (oldest != shim::ticket::none) {
        (void)owner_->device().query(oldest, longest_us);
    }
}

channel::~channel()
{
    if (of_ != nullptr) {
        of_->in_use = nullptr;
    }
    if (peer_ != nullptr) {
        std::erase(peer_->ports_there_, ports_);
        --peer_->users;
    }
    bool drained = true;
    for (const auto &queue : dma_queues_) {
        if (queue->wait_all(drain_timeout_us) != 0) {
            ucs_warn("%s: DMA jobs do not end: their staging memory stays "
                     "pinned",
                     name());
            abandon_staging();
            drained = false;
        }
    }
    /* Of one that has failed, or was closed, some were not acknowledged. */
    if ((peer_ != nullptr) && !(drained && ports_->is_usable())) {
        peer_->others_->note_unquiet_ports();
    }
}

int channel::share_staging(const card &user)
{
    if (&user == owner_) {
        return 0;
    }
    if (shared_.size() <= user.place()) {
        shared_.resize(user.place() + 1);
    }
    shim::registration &entry = shared_[user.place()];
    return (entry.address() != 0)
               ? 0
               : user.device().register_staging(chunks_.front().data,
                                                chunk_bytes_ * chunks_.size(),
                                                entry);
}

void channel::abandon_staging()
{
    for (shim::registration &entry : shared_) {
        entry.release();
    }
    staging_.abandon();
}

bool channel::arm(wakeup_event &event) const
{
    if (!is_of_card()) {
        return (others_->outstanding() == 0) || others_->arm();
    }
    for (const auto &queue : dma_queues_) {
        if (queue->outstanding() == 0) {
            continue;
        }
        if (ports_ != nullptr) {
            return false;
        }
        const shim::ticket job = queue->oldest_ticket();
        if (job == shim::ticket::none) {
            return false; /* it has ended meanwhile */
        }
        event.signal_after(owner_->device(), job);
    }
    return true;
}

bool channel::arm_for_room(wakeup_event &event) const
{
    if (std::any_of(
            dma_queues_.begin(), dma_queues_.end(),
            [](const auto &queue) { return queue->outstanding() > 0; })) {
        return true;
    }
    if (!is_of_card()) {
        return false;
    }
    const shim::ticket job = owner_->device().blocking_ticket();
    if (job == shim::ticket::none) {
        return false;
    }
    event.signal_after(owner_->device(), job);
    return true;
}

/* Those of a direction: both on one queue, or none. */
void channel::init_queues(shim::dma_direction direction, shim::dma_queue *all)
{
    for (const copies which : {of_long, of_short}) {
        work_queue &made = queue(direction, which);
        made.home        = this;
        made.direction   = direction;
        made.dma         = all;
        made.window      = UINT64_MAX;
        ucs_list_head_init(&made.waiting);
    }
}

int channel::make_queues(uint64_t window)
{
    const shim::capabilities &known = owner_->device().capabilities();
    for (size_t i = 0; i < shim::dma_directions; ++i) {
        const auto direction   = static_cast<shim::dma_direction>(i);
        const unsigned streams = known.streams[i];
        shim::dma_queue_options options;
        options.depth = known.copies_in_flight;
        init_queues(direction, nullptr);
        for (const copies which : {of_long, of_short}) {
            if (options.stream < streams) {
                const int ret = owner_->device().make_queue(
                    direction, options, dma_queues_.emplace_back());
                if (ret != 0) {
                    dma_queues_.pop_back();
                    return ret;
                }
                ++options.stream;
            }
            queue(direction, which).dma =
                (streams > 0) ? dma_queues_.back().get() : nullptr;
        }
        queue(direction, of_long).window = window;
    }
    return 0;
}

/* From the last one on, so that the first is taken first. */
void channel::make_chunks(char *data, uint64_t va, size_t count)
{
    chunks_.resize(count);
    for (size_t i = count; i > 0; --i) {
        const size_t at     = (i - 1) * chunk_bytes_;
        staging_chunk &made = chunks_[i - 1];
        made                = {this, data + at, va + at, nullptr};
        give_back()(&made);
    }
}

void channel::make_jobs(size_t count)
{
    jobs_.resize(count);
    for (dma_job &record : jobs_) {
        record.home = this;
        give_back()(&record);
    }
}

ucs_status_t channel::create(card &owner, const transfer_options &options,
                             std::unique_ptr<channel> &channel_p)
{
    std::unique_ptr<channel> created(new channel(&owner, options));

    int ret = shim::pinned_buffer::create(owner.device(),
                                          options.chunk_bytes * options.chunks,
                                          created->staging_);
    if (ret == 0) {
        ret = created->make_queues(uint64_t{options.piece_bytes} *
                                   options.pieces);
    }
    if (ret != 0) {
        ucs_error("%s: cannot create DMA queues: %s (raise ulimit -l, see "
                  "dmesg)",
                  owner.name().c_str(), std::strerror(-ret));
        return to_status(ret);
    }
    created->make_chunks(created->staging_.data(), created->staging_.address(),
                         options.chunks);
    created->make_jobs(created->dma_queues_.size() *
                       owner.device().capabilities().copies_in_flight);
    channel_p = std::move(created);
    return UCS_OK;
}

int channel::create(remote_peer &there, const transfer_options &options,
                    std::unique_ptr<channel> &channel_p)
{
    using enum shim::dma_direction;
    std::unique_ptr<owner_queue> queue;
    const int error = there.open_queue(queue);
    if (error != 0) {
        return error;
    }
    const size_t chunks = queue->memory().size() / options.chunk_bytes;
    if (chunks == 0) {
        return -EMSGSIZE;
    }
    std::unique_ptr<channel> created(new channel(nullptr, options));
    created->of_     = &there;
    created->others_ = queue.get();
    created->init_queues(host_to_device, queue.get());
    created->init_queues(device_to_host, queue.get());
    created->init_queues(device_to_device, nullptr);
    created->make_chunks(queue->memory().data(), 0, chunks);
    created->make_jobs(owner_queue::max_copies);
    created->dma_queues_.push_back(std::move(queue));
    there.in_use = created.get();
    channel_p    = std::move(created);
    return 0;
}

std::unique_ptr<channel> channel::create(card &owner,
                                         std::unique_ptr<shim::connection> over,
                                         channel *peer, uint32_t number,
                                         const transfer_options &options)
{
    using enum shim::dma_direction;
    std::unique_ptr<channel> created(new channel(&owner, options));
    auto ports = std::make_unique<port_queue>(
        std::move(over), (peer != nullptr) ? peer->others_ : nullptr);
    created->ports_ = ports.get();
    created->init_queues(device_to_host, ports.get());
    created->init_queues(device_to_device, nullptr);
    created->init_queues(host_to_device, nullptr);
    if (peer != nullptr) {
        ++peer->users;
        created->peer_ = peer;
        peer->ports_there_.push_back(created->ports_);
        peer->others_->before_giving_up([peer] {
            for (port_queue *each : peer->ports_there_) {
                each->close();
            }
        });
        for (const copies which : {of_long, of_short}) {
            work_queue &asks = created->queue(host_to_device, which);
            asks.home        = peer;
            asks.dma         = peer->others_;
            asks.link        = number;
        }
    }
    created->make_jobs(shim::connection_options().depth);
    created->dma_queues_.push_back(std::move(ports));
    return created;
}

} // namespace gaudi::base
