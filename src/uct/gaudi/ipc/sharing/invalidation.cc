#include "uct/gaudi/ipc/sharing/invalidation.h"

#include "uct/gaudi/ipc/sharing/remote_buffers.h"
#include "uct/gaudi/ipc/sharing/shared_page.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
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

/* Between two looks at the users of a key. */
constexpr std::chrono::microseconds shortest_pause{20};
constexpr std::chrono::microseconds longest_pause{1000};

void warn_of_user(uint32_t pid)
{
    ucs_warn("gaudi_ipc: process %u still uses memory that was invalidated %g "
             "s ago",
             pid, timeout.load());
}

class invalidation_queue {
public:
    void add(uint64_t stamp, uct_completion_t *completion)
    {
        {
            std::lock_guard<std::mutex> guard(lock_);
            if (has_users(stamp)) {
                waiting_.push_back(
                    {stamp, completion,
                     ucs_get_time() + ucs_time_from_sec(timeout.load()),
                     newest_});
                count_ = waiting_.size();
                return;
            }
        }
        uct_invoke_completion(completion, UCS_OK);
    }

    uint64_t open_interface()
    {
        std::lock_guard<std::mutex> guard(lock_);
        interfaces_.insert(++newest_);
        return newest_;
    }

    /* What nobody is left to wait for is forgotten, not called: completions are
     * part of requests, which UCP frees before it closes interfaces. */
    void close_interface(uint64_t id)
    {
        std::lock_guard<std::mutex> guard(lock_);
        interfaces_.erase(id);
        std::erase_if(waiting_, [&](const invalidation &waits) {
            return (waits.newest >= id) &&
                   (interfaces_.empty() ||
                    (*interfaces_.begin() > waits.newest));
        });
        count_ = waiting_.size();
    }

    unsigned progress()
    {
        if (is_empty()) {
            return 0;
        }
        std::vector<std::pair<uct_completion_t *, ucs_status_t>> outcomes;
        {
            std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);
            if (!guard.owns_lock()) {
                return 0; /* another thread is at it */
            }
            const ucs_time_t now = ucs_get_time();
            outcomes.reserve(waiting_.size());
            std::erase_if(waiting_, [&](const invalidation &waits) {
                const std::optional<uint32_t> user =
                    own_page::instance()->find_user(waits.stamp);
                if (!user) {
                    outcomes.emplace_back(waits.completion, UCS_OK);
                    return true;
                }
                if (now < waits.deadline) {
                    return false;
                }
                warn_of_user(*user);
                outcomes.emplace_back(waits.completion, UCS_ERR_TIMED_OUT);
                return true;
            });
            count_ = waiting_.size();
        }
        for (const auto &[completion, status] : outcomes) {
            uct_invoke_completion(completion, status);
        }
        return static_cast<unsigned>(outcomes.size());
    }

    [[nodiscard]] bool is_empty() const
    {
        return count_.load(std::memory_order_relaxed) == 0;
    }

private:
    std::mutex lock_;
    std::vector<invalidation> waiting_;
    std::atomic<size_t> count_{0}; /* the same, for a look without the lock */
    std::set<uint64_t> interfaces_;
    uint64_t newest_ = 0;
};

} // namespace

void set_invalidation_timeout(double seconds)
{
    constexpr double longest = 1e6; /* "inf", too, has to fit a clock */
    const double bounded     = (seconds < longest) ? seconds : longest;
    timeout                  = (seconds > 0) ? bounded : 0;
}

uint64_t open_invalidations()
{
    return util::of_this_process<invalidation_queue>().open_interface();
}

void close_invalidations(uint64_t id)
{
    util::of_this_process<invalidation_queue>().close_interface(id);
}

bool has_invalidations()
{
    return !util::of_this_process<invalidation_queue>().is_empty();
}

void wait_for_users(uint64_t stamp, uct_completion_t *completion)
{
    util::of_this_process<invalidation_queue>().add(stamp, completion);
}

bool has_users(uint64_t stamp)
{
    if (stamp == 0) {
        return false;
    }
    own_page::instance()->forget_dead_importers();
    return own_page::instance()->find_user(stamp).has_value();
}

ucs_status_t await_users(uint64_t stamp)
{
    const double limit     = timeout.load();
    const ucs_time_t start = ucs_get_time();
    auto pause             = shortest_pause;
    if (!has_users(stamp)) {
        return UCS_OK;
    }
    while (const auto user = own_page::instance()->find_user(stamp)) {
        if (ucs_time_to_sec(ucs_get_time() - start) >= limit) {
            warn_of_user(*user);
            return UCS_ERR_TIMED_OUT;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, longest_pause);
    }
    return UCS_OK;
}

unsigned progress_invalidations()
{
    remote_buffers::instance().sweep_sometimes();
    own_page::forget_dead_sometimes();
    return util::of_this_process<invalidation_queue>().progress();
}

} // namespace gaudi::ipc
