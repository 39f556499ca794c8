/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/session.h"

#include <mutex>

namespace gaudi::shim {

int synapse_session::create(const synapse_functions &functions,
                            const synDeviceInfoV2 &info,
                            std::shared_ptr<synapse_session> &session_p)
{
    std::shared_ptr<synapse_session> made(
        new synapse_session(functions, static_cast<int>(info.fd)));
    made->free_.reserve(max_events);
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

/* Events are made when they are first needed: SynapseAI has a number of them
 * for the whole process. */
synStatus synapse_session::take(job_event *&event_p)
{
    uint64_t number  = 0;
    job_event *taken = nullptr;
    {
        const std::lock_guard<util::brief_lock> guard(lock_);
        number = ++jobs_;
        if (!free_.empty()) {
            taken = free_.back();
            free_.pop_back();
        } else if (used_ < max_events) {
            taken = &events_[used_++];
        } else {
            return synAllResourcesTaken;
        }
    }
    const auto index = static_cast<size_t>(taken - events_.data());
    taken->job.store(ticket{number * max_events + index},
                     std::memory_order_release);
    const synStatus status =
        (taken->event == nullptr)
            ? api_.synEventCreate(&taken->event, device_id, 0)
            : synSuccess;
    if (status == synSuccess) {
        event_p = taken;
    } else {
        give_back(*taken);
    }
    return status;
}

/* What has no event is taken last. */
void synapse_session::give_back(job_event &event)
{
    event.job.store(ticket::none, std::memory_order_release);
    const std::lock_guard<util::brief_lock> guard(lock_);
    free_.insert((event.event == nullptr) ? free_.begin() : free_.end(),
                 &event);
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
