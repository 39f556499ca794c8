/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Turns the end of DMA jobs into a readable file descriptor.
 *
 * The driver has none: a job is polled, or waited for by a thread that sleeps
 * in the driver. So threads do that, started when somebody wants an event for
 * the first time: each sleeps on one job, signals, and takes the next one.
 * They are shared by all events of the process; there are as many as jobs were
 * ever watched at once.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "util/unique_fd.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi::base {

class wakeup_event {
public:
    /** Make an event. @return UCS_ERR_IO_ERROR without a file descriptor. */
    [[nodiscard]] static ucs_status_t
    create(std::unique_ptr<wakeup_event> &event_p);

    /** Waits for the threads that watch jobs for this event: not for long, when
     *  the jobs have ended, and never longer than about a second. */
    ~wakeup_event();

    /** Readable from a signal to the next @ref clear. Owned by the event. */
    [[nodiscard]] int fd() const { return fd_.get(); }

    /** Make the file descriptor readable. */
    void signal();

    /** Make the file descriptor unreadable. @return Whether it was readable. */
    bool clear();

    /** Signal when a job has ended, whether well or not.
     *  @param by   Whose job it is; must outlive this event.
     *  @param job  May have ended already; it is not watched twice at a time.
     *  @throws std::system_error when no thread can be started. */
    void signal_after(shim::card &by, shim::ticket job);

private:
    friend class watcher_threads;

    struct watched_job {
        shim::card *by;
        shim::ticket job;
        bool operator==(const watched_job &) const = default;
    };

    explicit wakeup_event(util::unique_fd fd) : fd_(std::move(fd)) {}
    void wait_and_signal(watched_job what);

    const util::unique_fd fd_;
    std::atomic<bool> closing_{false};
    std::mutex lock_; /* leaf */
    std::condition_variable idle_;
    std::vector<watched_job> watched_;
};

} // namespace gaudi::base
