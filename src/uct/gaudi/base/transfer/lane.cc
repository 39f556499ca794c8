/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/lane.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gaudi::base {

namespace {

/* Longest sleep of a card's lane. */
constexpr uint32_t sleep_us = 1000;

} // namespace

ucs_status_t work_queue::report_refusal(size_t length, int error) const
{
    error = home->blame(error);
    ucs_log(home->failure_level(error),
            "%s: cannot submit a copy of %zu bytes: %s", home->name(), length,
            std::strerror(-error));
    return to_status(error);
}

ucs_status_t work_queue::report_failure(size_t length, int error) const
{
    error = home->blame(error);
    ucs_log(home->failure_level(error),
            "%s: a DMA copy of %zu bytes failed: %s", home->name(), length,
            std::strerror(-error));
    return to_status(error);
}

/* --- any ------------------------------------------------------------------*/

lane::lane(card *owner, const transfer_options &options)
    : owner_(owner), chunk_bytes_(options.chunk_bytes),
      short_bytes_(options.short_bytes)
{
    for (size_t i = 0; i < queue_count; ++i) {
        queues_[i].home      = this;
        queues_[i].direction = static_cast<shim::dma_direction>(i / 2);
        ucs_list_head_init(&queues_[i].waiting);
    }
}

/* From the last one on, so that the first is taken first. */
void lane::make_chunks(char *data, uint64_t va, size_t count)
{
    chunks_.resize(count);
    for (size_t i = count; i > 0; --i) {
        const size_t at     = (i - 1) * chunk_bytes_;
        staging_chunk &made = chunks_[i - 1];
        made                = {this, data + at, va + at, nullptr, nullptr};
        give_back()(&made);
    }
}

void lane::make_jobs(size_t count)
{
    jobs_.resize(count);
    for (job &record : jobs_) {
        record.home = this;
        give_back()(&record);
    }
}

/* Called by destructors, before the memory of the chunks goes. */
bool lane::wait_for_jobs()
{
    if (wait_all(drain_timeout_us) == 0) {
        shared_.clear();
        return true;
    }
    ucs_warn("%s: DMA jobs do not end: their staging memory stays pinned",
             name());
    abandon_staging();
    return false;
}

int lane::share_staging(const card &user)
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

void lane::abandon_staging()
{
    for (shim::registration &entry : shared_) {
        entry.release();
    }
}

/* --- of a card ------------------------------------------------------------*/

int card_lane::make_queues(const transfer_options &sizes)
{
    const shim::capabilities &known = owner_->device().capabilities();
    for (size_t i = 0; i < shim::dma_directions; ++i) {
        const auto direction   = static_cast<shim::dma_direction>(i);
        const unsigned streams = known.streams[i];
        shim::dma_queue_options options;
        for (const copies which : {of_long, of_short}) {
            if (options.stream < streams) {
                options.depth = ((which == of_long) && (streams > 1))
                                    ? sizes.long_jobs
                                    : known.copies_in_flight;
                const int ret = owner_->device().make_queue(
                    direction, options, dma_queues_.emplace_back());
                if (ret != 0) {
                    dma_queues_.pop_back();
                    return ret;
                }
                ++options.stream;
            }
            if (streams > 0) {
                queue(direction, which).dma = dma_queues_.back().get();
            }
        }
    }
    return 0;
}

ucs_status_t card_lane::create(card &owner, const transfer_options &options,
                               std::unique_ptr<lane> &lane_p)
{
    std::unique_ptr<card_lane> created(new card_lane(&owner, options));
    int ret = shim::pinned_buffer::create(owner.device(),
                                          options.chunk_bytes * options.chunks,
                                          created->staging_);
    if (ret == 0) {
        ret = created->make_queues(options);
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
    lane_p = std::move(created);
    return UCS_OK;
}

unsigned card_lane::outstanding() const
{
    unsigned sum = 0;
    for (const auto &queue : dma_queues_) {
        sum += queue->outstanding();
    }
    return sum;
}

unsigned card_lane::poll(shim::dma_completion *ended, unsigned max)
{
    unsigned count = 0;
    for (const auto &queue : dma_queues_) {
        if ((count < max) && (queue->outstanding() > 0)) {
            count += queue->poll(ended + count, max - count);
        }
    }
    return count;
}

int card_lane::wait_all(uint64_t timeout_us)
{
    for (const auto &queue : dma_queues_) {
        const int ret = queue->wait_all(timeout_us);
        if (ret != 0) {
            return ret;
        }
    }
    return 0;
}

bool card_lane::arm(wakeup_event &event) const
{
    for (const auto &queue : dma_queues_) {
        if (queue->outstanding() == 0) {
            continue;
        }
        const shim::ticket oldest = queue->oldest_ticket();
        if (oldest == shim::ticket::none) {
            return false; /* it has ended meanwhile */
        }
        event.signal_after(owner_->device(), oldest);
    }
    return true;
}

bool card_lane::arm_for_room(wakeup_event &event) const
{
    if (outstanding() > 0) {
        return true;
    }
    const shim::ticket blocking = owner_->device().blocking_ticket();
    if (blocking == shim::ticket::none) {
        return false;
    }
    event.signal_after(owner_->device(), blocking);
    return true;
}

/* Not until all have ended: the next ones are to follow before the card has
 * nothing left. */
void card_lane::sleep(const work_queue &queue) const
{
    const shim::ticket oldest = queue.dma->oldest_ticket();
    if (oldest != shim::ticket::none) {
        (void)owner_->device().query(oldest, sleep_us);
    }
}

void card_lane::abandon_staging()
{
    lane::abandon_staging();
    staging_.abandon();
}

/* --- of another process ---------------------------------------------------*/

owner_lane::owner_lane(const transfer_options &options, std::span<char> chunks,
                       size_t requests)
    : lane(nullptr, options)
{
    const size_t count = chunks.size() / options.chunk_bytes;
    make_chunks(chunks.data(), 0, count);
    make_jobs(requests + count);
}

void owner_lane::give_up_ports()
{
    for (port_lane *each : ports_) {
        each->close();
    }
}

/* --- of ports -------------------------------------------------------------*/

port_lane::port_lane(card &owner, std::unique_ptr<shim::connection> over,
                     owner_lane *peer, uint32_t number,
                     const transfer_options &options)
    : lane(&owner, options), over_(std::move(over)), peer_(peer)
{
    make_jobs(shim::connection_options().depth);
    if (peer_ != nullptr) {
        peer_->ports_.push_back(this);
        ++peer_->users;
        for (const copies which : {of_long, of_short}) {
            work_queue &asks =
                queue(shim::dma_direction::host_to_device, which);
            asks.home   = peer_;
            asks.number = number;
        }
    }
}

port_lane::~port_lane()
{
    const bool drained = wait_for_jobs();
    if (peer_ != nullptr) {
        /* Of one that has failed, or was closed, some were not acknowledged. */
        if (!drained || !over_->is_usable()) {
            peer_->note_unquiet_ports();
        }
        std::erase(peer_->ports_, this);
        --peer_->users;
    }
}

/* Who has ended acknowledges nothing any more. */
unsigned port_lane::look(shim::dma_completion *ended, unsigned max)
{
    const unsigned found = over_->poll(ended, max);
    if (found > 0) {
        idle_polls_ = 0;
    } else if ((++idle_polls_ % polls_before_look == 0) && (peer_ != nullptr) &&
               peer_->has_failed()) {
        over_->close();
    }
    return found;
}

unsigned port_lane::poll(shim::dma_completion *ended, unsigned max)
{
    if (ended_.empty()) {
        return look(ended, max);
    }
    const auto count =
        std::min<ptrdiff_t>(max, static_cast<ptrdiff_t>(ended_.size()));
    std::copy_n(ended_.begin(), count, ended);
    ended_.erase(ended_.begin(), ended_.begin() + count);
    return static_cast<unsigned>(count);
}

int port_lane::wait_all(uint64_t timeout_us)
{
    using clock         = std::chrono::steady_clock;
    const auto deadline = clock::now() + std::chrono::microseconds(timeout_us);
    while (over_->outstanding() > 0) {
        shim::dma_completion next;
        if (look(&next, 1) > 0) {
            ended_.push_back(next);
        } else if (clock::now() >= deadline) {
            return -EAGAIN;
        } else {
            util::nap();
        }
    }
    return 0;
}

} // namespace gaudi::base
