/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What wakes an interface that sleeps: a message, the end of a request, or the
 * end of a link. Shared by the interface and its links, which any thread may
 * signal.
 */
#pragma once

#include "util/unique_fd.h"

#include <atomic>

#include <sys/eventfd.h>
#include <unistd.h>

namespace gaudi::ipc {

class event {
public:
    /** Invalid without a descriptor: see @ref fd. */
    event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    /** Readable from a signal to the next @ref clear; -1: none could be had,
     *  with errno after construction. */
    [[nodiscard]] int fd() const { return fd_.get(); }

    void signal() const { (void)eventfd_write(fd_.get(), 1); }
    void clear() const
    {
        eventfd_t count;
        (void)eventfd_read(fd_.get(), &count);
    }

    /** A link has ended: its endpoints may have to fail. */
    void signal_link_end()
    {
        link_ended_.store(true);
        signal();
    }
    [[nodiscard]] bool take_link_end()
    {
        return link_ended_.load(std::memory_order_relaxed) &&
               link_ended_.exchange(false);
    }
    [[nodiscard]] bool has_link_end() const { return link_ended_.load(); }

private:
    const util::unique_fd fd_;
    std::atomic<bool> link_ended_{false};
};

} // namespace gaudi::ipc
