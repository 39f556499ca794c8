/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/invalidation.h"

#include "uct/gaudi/ipc/process/foreign_pages.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

std::atomic<double> timeout{10.0};

struct invalidation {
    uint64_t stamp;
    uct_completion_t *completion;
    ucs_time_t deadline;
    uint64_t newest; /* interface there was when it began */
};

/* Between two looks for processes that have ended, seconds. */
constexpr double tidy_interval = 50e-3;

/* Between two looks at the users of a key. */
constexpr std::chrono::microseconds shortest_pause{20};
constexpr std::chrono::microseconds longest_pause{1000};

/* Whether somebody who lives uses a key for too long, which is said. What one
 * has begun that has left ends by itself. */
bool is_too_late(const own_page::key_user &user, ucs_time_t deadline)
{
    if (user.has_left || (ucs_get_time() < deadline)) {
        return false;
    }
    ucs_warn("gaudi_ipc: process %u still uses memory that was invalidated %g "
             "s ago",
             user.pid, timeout.load());
    return true;
}

struct invalidation_queue {
    std::mutex lock;
    std::vector<invalidation> waiting;
    std::atomic<size_t> count{0}; /* the same, for a look without the lock */
    std::set<uint64_t> interfaces;
    uint64_t newest = 0;
    pace tidying{tidy_interval};
};

invalidation_queue &queue_of_process()
{
    return util::of_this_process<invalidation_queue>();
}

} // namespace

void set_invalidation_timeout(double seconds)
{
    constexpr double longest = 1e6; /* "inf", too, has to fit a clock */
    const double bounded     = (seconds < longest) ? seconds : longest;
    timeout                  = (seconds > 0) ? bounded : 0;
}

uint64_t open_invalidations()
{
    invalidation_queue &queue = queue_of_process();
    std::lock_guard<std::mutex> guard(queue.lock);
    queue.interfaces.insert(++queue.newest);
    return queue.newest;
}

/* What nobody is left to wait for is forgotten, not called: completions are
 * part of requests, which UCP frees before it closes interfaces. */
void close_invalidations(uint64_t id)
{
    invalidation_queue &queue = queue_of_process();
    std::lock_guard<std::mutex> guard(queue.lock);
    queue.interfaces.erase(id);
    std::erase_if(queue.waiting, [&](const invalidation &waits) {
        return (waits.newest >= id) &&
               (queue.interfaces.empty() ||
                (*queue.interfaces.begin() > waits.newest));
    });
    queue.count = queue.waiting.size();
}

bool has_invalidations()
{
    return queue_of_process().count.load(std::memory_order_relaxed) != 0;
}

void wait_for_users(uint64_t stamp, uct_completion_t *completion)
{
    if (!has_users(stamp)) {
        uct_invoke_completion(completion, UCS_OK);
        return;
    }
    invalidation_queue &queue = queue_of_process();
    std::lock_guard<std::mutex> guard(queue.lock);
    queue.waiting.push_back({stamp, completion,
                             ucs_get_time() + ucs_time_from_sec(timeout.load()),
                             queue.newest});
    queue.count = queue.waiting.size();
}

bool has_users(uint64_t stamp)
{
    if (stamp == 0) {
        return false;
    }
    (void)own_page::forget_dead_importers();
    return own_page::instance()->find_user(stamp).has_value();
}

ucs_status_t await_users(uint64_t stamp)
{
    const ucs_time_t deadline =
        ucs_get_time() + ucs_time_from_sec(timeout.load());
    auto pause = shortest_pause;
    if (!has_users(stamp)) {
        return UCS_OK;
    }
    while (const auto user = own_page::instance()->find_user(stamp)) {
        if (is_too_late(*user, deadline)) {
            return UCS_ERR_TIMED_OUT;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, longest_pause);
    }
    return UCS_OK;
}

unsigned progress_invalidations()
{
    if (queue_of_process().tidying.is_due()) {
        foreign_pages::instance().sweep();
        (void)own_page::forget_dead_importers();
    }
    if (!has_invalidations()) {
        return 0;
    }
    std::vector<std::pair<uct_completion_t *, ucs_status_t>> outcomes;
    {
        invalidation_queue &queue = queue_of_process();
        std::unique_lock<std::mutex> guard(queue.lock, std::try_to_lock);
        if (!guard.owns_lock()) {
            return 0; /* another thread is at it */
        }
        outcomes.reserve(queue.waiting.size());
        std::erase_if(queue.waiting, [&](const invalidation &waits) {
            const auto user = own_page::instance()->find_user(waits.stamp);
            if (user && !is_too_late(*user, waits.deadline)) {
                return false;
            }
            outcomes.emplace_back(waits.completion,
                                  user ? UCS_ERR_TIMED_OUT : UCS_OK);
            return true;
        });
        queue.count = queue.waiting.size();
    }
    for (const auto &[completion, status] : outcomes) {
        uct_invoke_completion(completion, status);
    }
    return static_cast<unsigned>(outcomes.size());
}

} // namespace gaudi::ipc
