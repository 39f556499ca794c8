#include "uct/gaudi/ipc/sharing/invalidation.h"

#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/sharing/remote_buffers.h"
#include "uct/gaudi/ipc/sharing/shared_page.h"
#include "util/per_process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

std::atomic<double> timeout{10.0};

/* For how long an importer is not asked again that did not answer in time: in
 * seconds, and at most a part of the time that an invalidation waits. */
constexpr double silence      = 5;
constexpr double silence_part = 0.5;

struct invalidation {
    uint64_t generation;
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

/* So many importers are asked for their pages at a time: each costs a
 * descriptor meanwhile. */
constexpr size_t most_asked = 16;

/* Another process that uses memory of this one. */
struct importer {
    std::shared_ptr<remote_process> process;
    std::unique_ptr<foreign_page> page; /* once it is got */
    file_request request;               /* under way until then */
};

class invalidation_queue {
public:
    void add(uint64_t generation, uct_completion_t *completion)
    {
        {
            std::lock_guard<std::mutex> guard(lock_);
            forget_dead();
            if ((generation != 0) && find_user(generation)) {
                waiting_.push_back(
                    {generation, completion,
                     ucs_get_time() + ucs_time_from_sec(timeout.load()),
                     newest_});
                count_ = waiting_.size();
                return;
            }
        }
        uct_invoke_completion(completion, UCS_OK);
    }

    bool has_users(uint64_t generation)
    {
        std::lock_guard<std::mutex> guard(lock_);
        forget_dead();
        return find_user(generation).has_value();
    }

    /* @return None, once nobody uses a key; who does, after too long. */
    std::optional<uint32_t> await(uint64_t generation)
    {
        const double limit     = timeout.load();
        const ucs_time_t start = ucs_get_time();
        auto pause             = shortest_pause;
        std::optional<uint32_t> user;
        for (bool first = true;; first = false) {
            {
                std::lock_guard<std::mutex> guard(lock_);
                if (first) {
                    forget_dead();
                }
                user = find_user(generation);
            }
            if (!user || (ucs_time_to_sec(ucs_get_time() - start) >= limit)) {
                return user;
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, longest_pause);
        }
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
                    find_user(waits.generation);
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
    /* How many importers have not answered. */
    size_t asked() const
    {
        return static_cast<size_t>(std::count_if(
            importers_.begin(), importers_.end(),
            [](const auto &of) { return of.second.page == nullptr; }));
    }

    /* Try to get an importer's page, without waiting for it. */
    ucs_status_t ask(const process_id &process, const file_ref &file,
                     importer &of)
    {
        ucs_status_t status = (of.process == nullptr)
                                  ? remote_process::open(process, of.process)
                                  : UCS_OK;
        util::unique_fd fd;
        if (status == UCS_OK) {
            status = of.process->try_file(file, of.request, fd);
        }
        if (status == UCS_OK) {
            status = foreign_page::map(fd.get(), process, of.page);
        }
        return status;
    }

    /* @return UCS_INPROGRESS: its page cannot be got now, so it may be using
     *         anything. Else an error: it is gone, or is another program. */
    ucs_status_t find(const process_id &process, const file_ref &file,
                      const importer *&found_p)
    {
        const ucs_time_t now = ucs_get_time();
        const auto silent    = silent_.find(process.nonce);
        if ((silent != silent_.end()) && (now < silent->second)) {
            return UCS_INPROGRESS;
        }
        auto known = importers_.find(process.nonce);
        if (known == importers_.end()) {
            if (asked() >= most_asked) {
                return UCS_INPROGRESS;
            }
            known = importers_.try_emplace(process.nonce).first;
        }
        const ucs_status_t status = (known->second.page == nullptr)
                                        ? ask(process, file, known->second)
                                        : UCS_OK;
        if (status == UCS_INPROGRESS) {
            return status;
        }
        silent_.erase(process.nonce);
        if (status == UCS_OK) {
            found_p = &known->second;
            return status;
        }
        importers_.erase(known);
        switch (status) {
        case UCS_ERR_TIMED_OUT:
        case UCS_ERR_REJECTED:
            silent_[process.nonce] =
                now + ucs_time_from_sec(
                          std::min(silence, timeout.load() * silence_part));
            return UCS_INPROGRESS;
        case UCS_ERR_NO_RESOURCE:
        case UCS_ERR_NO_MEMORY:
            return UCS_INPROGRESS;
        default:
            return status;
        }
    }

    bool is_using(importer_entry &entry, uint64_t generation)
    {
        /* The importer may be writing it, but not one that uses anything. */
        const process_id process  = entry.process;
        const file_ref file       = entry.page;
        const importer *user      = nullptr;
        const ucs_status_t status = find(process, file, user);
        if (status != UCS_OK) {
            own_page::forget_if_dead(entry);
            return status == UCS_INPROGRESS;
        }
        if (!user->page->is_using(own_process().nonce, generation)) {
            return false;
        }
        if (user->process->is_alive()) {
            return true;
        }
        importers_.erase(process.nonce);
        return false;
    }

    /* All are looked at, so that those whose pages are not known are asked at
     * the same time.
     * @return The pid of a process that uses a key right now, if one does. */
    std::optional<uint32_t> find_user(uint64_t generation)
    {
        std::optional<uint32_t> user;
        own_page::instance()->for_each_importer([&](importer_entry &entry) {
            if (is_using(entry, generation)) {
                user = entry.process.pid;
            }
        });
        return user;
    }

    /* An importer costs a descriptor and a mapping. */
    void forget_dead()
    {
        std::erase_if(importers_, [](const auto &entry) {
            return !entry.second.process->is_alive();
        });
        const ucs_time_t now = ucs_get_time();
        std::erase_if(silent_,
                      [now](const auto &entry) { return entry.second <= now; });
    }

    std::mutex lock_;
    std::vector<invalidation> waiting_;
    std::atomic<size_t> count_{0}; /* the same, for a look without the lock */
    std::unordered_map<uint64_t, importer> importers_; /* by nonce */
    std::unordered_map<uint64_t, ucs_time_t> silent_; /* likewise, until when */
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

void wait_for_users(uint64_t generation, uct_completion_t *completion)
{
    util::of_this_process<invalidation_queue>().add(generation, completion);
}

bool has_users(uint64_t generation)
{
    return (generation != 0) &&
           util::of_this_process<invalidation_queue>().has_users(generation);
}

ucs_status_t await_users(uint64_t generation)
{
    const std::optional<uint32_t> user =
        (generation == 0)
            ? std::nullopt
            : util::of_this_process<invalidation_queue>().await(generation);
    if (user) {
        warn_of_user(*user);
    }
    return user ? UCS_ERR_TIMED_OUT : UCS_OK;
}

unsigned progress_invalidations()
{
    remote_buffers::instance().sweep_sometimes();
    return util::of_this_process<invalidation_queue>().progress();
}

} // namespace gaudi::ipc
