/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/wakeup.h"

#include "util/background_thread.h"
#include "util/process.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace gaudi::base {

namespace {

/* Longest sleep in the driver. No wakeup hangs on it: it bounds how long an
 * event that goes away waits for a job that does not end. */
constexpr uint32_t sleep_us = 1'000'000;

} // namespace

/* One per process: its threads are not in a child. */
class watcher_threads {
public:
    void add(wakeup_event &event, wakeup_event::watched_job what)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (queue_.size() >= idle_) {
            util::start_background_thread("ucx-gaudi-wait", [this] { run(); });
            ++idle_;
        }
        queue_.emplace_back(&event, what);
        added_.notify_one();
    }

private:
    void run()
    {
        std::unique_lock<std::mutex> guard(lock_);
        for (;;) {
            added_.wait(guard, [&] { return !queue_.empty(); });
            const auto [event, job] = queue_.front();
            queue_.pop_front();
            --idle_;
            guard.unlock();
            event->wait_and_signal(job);
            guard.lock();
            ++idle_;
        }
    }

    std::mutex lock_; /* leaf */
    std::condition_variable added_;
    std::deque<std::pair<wakeup_event *, wakeup_event::watched_job>> queue_;
    size_t idle_ = 0; /* threads that take from the queue, or will */
};

ucs_status_t wakeup_event::create(std::unique_ptr<wakeup_event> &event_p)
{
    util::unique_fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) {
        ucs_error("gaudi: cannot create an event file descriptor: %m (raise "
                  "ulimit -n)");
        return UCS_ERR_IO_ERROR;
    }
    event_p.reset(new wakeup_event(std::move(fd)));
    return UCS_OK;
}

wakeup_event::~wakeup_event()
{
    closing_.store(true);
    std::unique_lock<std::mutex> guard(lock_);
    idle_.wait(guard, [&] { return watched_.empty(); });
}

void wakeup_event::signal()
{
    constexpr uint64_t one = 1;
    /* Fails only when the count is at its end, and so readable. */
    (void)!write(fd(), &one, sizeof(one));
}

bool wakeup_event::clear()
{
    uint64_t count;
    return read(fd(), &count, sizeof(count)) == sizeof(count);
}

void wakeup_event::signal_after(shim::card &by, shim::ticket job)
{
    const watched_job what{&by, job};
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (std::find(watched_.begin(), watched_.end(), what) !=
            watched_.end()) {
            return;
        }
        watched_.push_back(what);
    }
    try {
        util::of_this_process<watcher_threads>().add(*this, what);
    } catch (...) {
        std::lock_guard<std::mutex> guard(lock_);
        std::erase(watched_, what);
        throw;
    }
}

/* On a watcher thread. */
void wakeup_event::wait_and_signal(watched_job what)
{
    try {
        while ((what.by->query(what.job, sleep_us) == 0) && !closing_.load()) {}
    } catch (...) {
        /* Whoever is woken for nothing looks himself. */
    }

    std::lock_guard<std::mutex> guard(lock_);
    signal();
    std::erase(watched_, what);
    idle_.notify_all();
}

} // namespace gaudi::base
