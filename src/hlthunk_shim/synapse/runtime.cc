/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/runtime.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>

namespace gaudi::shim {

namespace {

constexpr synDeviceId any_device = 0;

} // namespace

/* Under the lock. */
void synapse_runtime::note_acquisition(int fd)
{
    acquired_ = fd;
    if (fd < 0) {
        in_use_.reset();
    } else if (!in_use_.has_value()) {
        in_use_.emplace();
    }
}

void synapse_runtime::opened(int fd)
{
    const std::lock_guard<std::mutex> guard(lock_);
    known_.opened = fd;
    note_acquisition(fd);
}

void synapse_runtime::closed(int fd)
{
    std::shared_ptr<synapse_session> old;
    const std::lock_guard<std::mutex> guard(lock_);
    if (fd == acquired_) {
        note_acquisition(-1);
    }
    if (fd == known_.opened) {
        known_.opened = -1;
    }
    if (fd == known_.fd) {
        known_.fd = -1;
        old.swap(known_.session);
    }
}

/* SynapseAI's functions, or nullptr with the reason. */
const synapse_functions *synapse_runtime::find(bool load, std::string &why_p)
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (api_ != nullptr) {
            return api_.get();
        }
    }
    auto found = synapse_functions::find(load, why_p);
    const std::lock_guard<std::mutex> guard(lock_);
    if (api_ == nullptr) {
        api_ = std::move(found);
    }
    return api_.get();
}

/* While it acquires a device, SynapseAI must not be asked about it. SCAL knows
 * a descriptor from the end of its own part on, which is nearly all. */
bool synapse_runtime::is_ready(const synapse_functions &api, int fd) const
{
    scal_handle_t scal = nullptr;
    return (fd < 0) || (api.scal_get_handle_from_fd == nullptr) ||
           (api.scal_get_handle_from_fd(fd, &scal) == 0);
}

void synapse_runtime::look()
{
    std::string none;
    const synapse_functions *api = find(false, none);
    if (api == nullptr) {
        return;
    }
    int opening;
    std::shared_ptr<synapse_session> session;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if ((known_.opened >= 0) && (fcntl(known_.opened, F_GETFD) < 0)) {
            known_.opened = -1; /* it gave up */
        }
        opening = known_.opened;
        session = known_.session;
    }
    if (!is_ready(*api, opening)) {
        return;
    }
    /* It does not fill all of it before 1.18. */
    synDeviceInfoV2 info{};
    const bool acquired =
        (api->synDeviceGetInfoV2(any_device, &info) == synSuccess);
    const int fd = acquired ? static_cast<int>(info.fd) : -1;
    if (acquired && ((session == nullptr) || session->has_ended() ||
                     (session->fd() != fd))) {
        session.reset();
        (void)synapse_session::create(*api, info, session);
    } else if (!acquired) {
        session.reset();
    }
    const std::lock_guard<std::mutex> guard(lock_);
    const bool was_faster = (known_.session != nullptr) &&
                            !known_.session->has_ended() &&
                            (known_.session->fd() == fd);
    if (known_.opened == opening) {
        known_.opened = -1;
        known_.fd     = fd;
        note_acquisition(fd);
        if (!was_faster) { /* another thread: one session for all */
            known_.session = std::move(session);
        }
    }
}

int synapse_runtime::refuse(const std::string &why)
{
    const std::lock_guard<std::mutex> guard(lock_);
    known_.why_not = why;
    return -ENOTSUP;
}

int synapse_runtime::acquire(const std::string &bus_id)
{
    const own_synapse_call own;
    std::string why;
    const synapse_functions *api = find(true, why);
    if (api == nullptr) {
        return refuse(why);
    }
    if (!api->can_acquire()) {
        return refuse(synapse_functions::no_acquisition);
    }
    synDeviceInfoV2 info{};
    const synStatus state = api->synDeviceGetInfoV2(any_device, &info);
    if (state == synSuccess) {
        return refuse("it has another card of this process already, and takes "
                      "no more than one");
    }
    const bool initialising = (state == synUninitialized);
    if (initialising) {
        const int ret = to_error(api->synInitialize());
        if (ret != 0) {
            return ret;
        }
    }
    synDeviceId id      = 0;
    const synStatus got = api->synDeviceAcquire(&id, bus_id.c_str());
    /* What it says of a card that somebody has, too. */
    const int ret = (got == synNoDeviceFound) ? -EBUSY : to_error(got);
    if (ret != 0) {
        if (initialising) {
            (void)api->synDestroy();
        }
        return ret;
    }
    {
        const std::lock_guard<std::mutex> guard(lock_);
        initialised_ = initialising;
    }
    look();
    if (known().session == nullptr) {
        release();
        return -EIO;
    }
    return 0;
}

void synapse_runtime::release()
{
    const own_synapse_call own;
    const synapse_functions *api;
    bool destroying;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        api        = api_.get();
        destroying = std::exchange(initialised_, false);
        known_.fd  = -1;
        note_acquisition(-1);
        if (known_.session != nullptr) {
            known_.session->end();
            known_.session.reset();
        }
    }
    (void)api->synDeviceRelease(any_device);
    if (destroying) {
        (void)api->synDestroy();
    }
}

} // namespace gaudi::shim
