/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/remote_buffers.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "util/background_thread.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace gaudi::ipc {

static int to_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_ERR_NO_RESOURCE:
        return -EMFILE;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_ELEM:
        return -ENOENT;
    default:
        return -ESRCH;
    }
}

remote_buffer::remote_buffer(std::shared_ptr<foreign_page> of,
                             const wire_key &key, remote_buffers &cache)
    : of_(std::move(of)), key_(key), cache_(cache),
      windows_(key.buffer.address, key.buffer.size, key.buffer.parts != 0, true)
{}

remote_buffer::~remote_buffer()
{
    cache_.gone(*this);
}

base::kept_window remote_buffer::keep(uint64_t address, uint64_t length)
{
    base::kept_window window = windows_.find(address, length);
    if (window != nullptr) {
        window->used_at.store(ucs_get_time(), std::memory_order_relaxed);
    }
    return window;
}

int remote_buffer::va_on(base::card &user, uint64_t address, uint64_t length,
                         bool waits, uint64_t &va_p)
{
    base::kept_window window;
    const ucs_status_t status = base::guarded([&] {
        window = windows_.find(address, length);
        return UCS_OK;
    });
    if (window == nullptr) {
        return (status == UCS_OK) ? -EFAULT : -ENOMEM;
    }
    if (!waits && (window->size() > quick_bytes) &&
        !window->imports.knows(user) && start_import(user, window)) {
        return -EINPROGRESS;
    }
    uint64_t first  = 0;
    const int error = import_once(user, window, first);
    va_p            = first + (address - window->start);
    return error;
}

int remote_buffer::import_once(base::card &user,
                               const base::kept_window &window,
                               uint64_t &first_p)
{
    const auto import = [&](shim::registration &mapping) {
        base::card_mappings::answer given{-ENOMEM, false};
        (void)base::guarded([&] {
            given = import_on(user, window, mapping);
            return UCS_OK;
        });
        return given;
    };
    return window->imports.va_on(user, import, first_p);
}

/* Have a thread import a window, unless one does.
 * @return Whether one is at it. */
bool remote_buffer::start_import(base::card &user,
                                 const base::kept_window &window)
{
    if (window->opens_in_background.exchange(true)) {
        return true;
    }
    cache_.count_threads(1);
    try {
        util::start_background_thread(
            "ucx-gaudi-open",
            [&cache = cache_, &user, cards = user.hold(), window = window,
             self = shared_from_this()]() mutable {
                uint64_t first;
                (void)self->import_once(user, window, first);
                window->opens_in_background = false;
                /* Who closes the cache may close cards. */
                window.reset();
                self.reset();
                cards = {};
                cache.count_threads(-1);
            });
        return true;
    } catch (const std::exception &error) {
        ucs_debug("gaudi_ipc: no thread for an import: %s", error.what());
    }
    window->opens_in_background = false;
    cache_.count_threads(-1);
    return false;
}

base::card_mappings::answer
remote_buffer::import_on(base::card &user, const base::kept_window &window,
                         shim::registration &mapping)
{
    const uint64_t size = window->size();
    const file_part part{window->start - key_.buffer.address, size};
    file_pair files; /* the import keeps what it needs */
    const util::unique_fd &fd = files[0];
    int error                 = to_errno(
                        of_->process().get_files(key_.buffer.file, files, {-1, -1}, part));
    if (fd) {
        error = user.device().import_dmabuf(fd.get(), size, mapping);
    }
    if ((error == 0) && is_withdrawn()) {
        return {-ENOENT, false};
    }
    if (error != 0) {
        ucs_debug("%s cannot reach %lu bytes at %#lx of process %u: %s",
                  user.name().c_str(), size, window->start,
                  of_->process().id().pid, std::strerror(-error));
    }
    if ((error == -EPERM) && !of_->without_peers.exchange(true)) {
        ucs_diag("gaudi_ipc: %s has no peer-to-peer to a card of process %u: "
                 "its device memory is reached in other ways",
                 user.name().c_str(), of_->process().id().pid);
    }
    const bool is_final =
        fd && ((error == 0) || (error == -EOPNOTSUPP) || (error == -EPERM));
    if (is_final) {
        cache_.opened(*this, window, (error == 0) ? size : 0);
    }
    return {error, is_final};
}

} // namespace gaudi::ipc
