/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/session.h"

#include <algorithm>
#include <cerrno>

namespace gaudi::shim {

namespace {

/* A ticket: the job, the ring, the event in it. */
constexpr unsigned event_bits = 10;
constexpr unsigned ring_bits  = 12;
constexpr uint64_t job_limit  = uint64_t{1} << (64 - event_bits - ring_bits);

struct parts {
    uint64_t job;
    size_t ring;
    size_t event;
};

parts split(ticket of)
{
    const auto number = static_cast<uint64_t>(of);
    return {number >> (event_bits + ring_bits),
            (number >> event_bits) & ((1u << ring_bits) - 1),
            number & ((1u << event_bits) - 1)};
}

} // namespace

int synapse_session::create(const synapse_functions &functions,
                            const synDeviceInfoV2 &info,
                            std::shared_ptr<synapse_session> &session_p)
{
    static_assert(max_rings == size_t{1} << ring_bits);
    std::shared_ptr<synapse_session> made(
        new synapse_session(functions, static_cast<int>(info.fd)));
    for (synStreamHandle &stream : made->streams_) {
        const synStatus status =
            functions.synStreamCreateGeneric(&stream, device_id, 0);
        if (status != synSuccess) {
            return to_error(status);
        }
    }
    made->find_memory(info);
    session_p = std::move(made);
    return 0;
}

/* SCAL knows it exactly. SynapseAI knows where the block begins that the pool
 * lies in, which on Gaudi2 is before the pool. */
void synapse_session::find_memory(const synDeviceInfoV2 &info)
{
    scal_handle_t scal      = nullptr;
    scal_pool_handle_t pool = nullptr;
    scal_memory_pool_infoV2 known{};
    if ((api_.scal_get_handle_from_fd != nullptr) &&
        (api_.scal_get_pool_handle_by_name != nullptr) &&
        (api_.scal_pool_get_infoV2 != nullptr) &&
        (api_.scal_get_handle_from_fd(fd_, &scal) == 0) &&
        (api_.scal_get_pool_handle_by_name(scal, scal_device_pool, &pool) ==
         0) &&
        (api_.scal_pool_get_infoV2(pool, &known) == 0)) {
        memory_ = {known.device_base_address,
                   known.device_base_address + known.totalSize,
                   known.device_base_allocated_address};
    } else if (info.globalHbmBaseAddress != 0) {
        memory_ = {info.globalHbmBaseAddress,
                   info.globalHbmBaseAddress + info.dramSize,
                   info.globalHbmBaseAddress};
    }
}

int synapse_session::take_ring(unsigned depth, event_ring *&ring_p)
{
    if ((depth == 0) || (depth > (1u << event_bits))) {
        return -EINVAL;
    }
    const std::lock_guard<std::mutex> guard(rings_lock_);
    const auto fits = std::find_if(
        free_rings_.begin(), free_rings_.end(),
        [&](const event_ring *ring) { return ring->events.size() == depth; });
    if (fits != free_rings_.end()) {
        ring_p = *fits;
        free_rings_.erase(fits);
        return 0;
    }
    if (ring_count_ == max_rings) {
        return -ENOMEM;
    }
    free_rings_.reserve(ring_count_ + 1);
    auto made             = std::make_unique<event_ring>(depth);
    made->number          = static_cast<unsigned>(ring_count_);
    rings_[ring_count_++] = std::move(made);
    ring_p                = rings_[ring_count_ - 1].get();
    return 0;
}

void synapse_session::return_ring(event_ring &ring)
{
    const std::lock_guard<std::mutex> guard(rings_lock_);
    free_rings_.push_back(&ring);
}

synStatus synapse_session::find_free(event_ring &ring,
                                     job_event *&event_p) const
{
    if (ring.next == ring.events.size()) {
        ring.next = 0;
    }
    if (ring.next == ring.made) {
        const synStatus status =
            api_.synEventCreate(&ring.events[ring.made].event, device_id, 0);
        if (status == synSuccess) {
            ++ring.made;
        } else if ((status == synAllResourcesTaken) && (ring.made > 0)) {
            ring.next = 0;
        } else {
            return status;
        }
    }
    event_p = &ring.events[ring.next];
    return (event_p->job.load(std::memory_order_relaxed) == 0)
               ? synSuccess
               : synAllResourcesTaken;
}

ticket synapse_session::make_ticket(const event_ring &ring,
                                    const job_event &event)
{
    const auto place = static_cast<uint64_t>(&event - ring.events.data());
    return ticket{(event.job.load(std::memory_order_relaxed) % job_limit)
                      << (event_bits + ring_bits) |
                  uint64_t{ring.number} << event_bits | place};
}

/* Whoever has a ticket of a ring has seen it made. */
const job_event *synapse_session::find(ticket of) const
{
    const parts named      = split(of);
    const job_event &event = rings_[named.ring]->events[named.event];
    return is_current(of, event) ? &event : nullptr;
}

bool synapse_session::is_current(ticket of, const job_event &event)
{
    return event.job.load(std::memory_order_acquire) % job_limit ==
           split(of).job;
}

bool synapse_session::is_end(synStatus status) const
{
    switch (status) {
    case synDeviceReset:
    case synUninitialized:
    case synSynapseTerminated:
        return true;
    case synInvalidArgument:
    case synFail:
    case synInvalidEventHandle: {
        /* Also what it says of handles that went with the device. */
        synDeviceInfoV2 info{};
        return (api_.synDeviceGetInfoV2(device_id, &info) != synSuccess) ||
               (static_cast<int>(info.fd) != fd_) ||
               (status == synInvalidEventHandle);
    }
    default:
        return false;
    }
}

} // namespace gaudi::shim
