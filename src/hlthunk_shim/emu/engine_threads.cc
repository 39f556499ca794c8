#include "hlthunk_shim/emu/engine_threads.h"

#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/settings.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr std::chrono::microseconds idle_spin{50};

} // namespace

engine_threads &engine_threads::instance()
{
    /* Never destroyed: threads may still run when the process exits. */
    static auto *pool = new engine_threads;
    return *pool;
}

void engine_threads::kick(card &busy)
{
    const unsigned count = get_settings().engines;
    if (count == 0) {
        return;
    }

    std::lock_guard<std::mutex> guard(lock_);
    ++kicks_;
    if (std::find(cards_.begin(), cards_.end(), &busy) == cards_.end()) {
        cards_.push_back(&busy);
    }
    if (owner_ != getpid()) {
        /* Application signal handlers must not run on these threads. */
        sigset_t all;
        sigset_t saved;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &saved);
        for (unsigned i = 0; i < count; ++i) {
            std::thread(&engine_threads::run, this).detach();
        }
        pthread_sigmask(SIG_SETMASK, &saved, nullptr);
        owner_    = getpid();
        sleeping_ = 0;
    }
    if (sleeping_ > 0) {
        kicked_.notify_one();
    }
}

/* One slice of the first card that has one. */
bool engine_threads::work_once()
{
    for (size_t i = 0;; ++i) {
        card *next = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock_);
            if (i >= cards_.size()) {
                return false;
            }
            next = cards_[i];
        }
        if (next->run_slice()) {
            return true;
        }
    }
}

void engine_threads::run()
{
    using clock = std::chrono::steady_clock;

    pthread_setname_np(pthread_self(), "hlthunk-emu");
    for (;;) {
        unsigned long seen;
        {
            std::lock_guard<std::mutex> guard(lock_);
            seen = kicks_;
        }
        auto give_up = clock::now() + idle_spin;
        while (clock::now() < give_up) {
            if (work_once()) {
                give_up = clock::now() + idle_spin;
            } else {
                std::this_thread::yield();
            }
        }
        std::unique_lock<std::mutex> guard(lock_);
        ++sleeping_;
        kicked_.wait(guard, [&] { return kicks_ != seen; });
        --sleeping_;
    }
}

} // namespace gaudi::emu
