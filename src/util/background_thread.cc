/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/background_thread.h"

#include "util/warning.h"

#include <chrono>
#include <exception>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::util {

namespace {

/* No signal is delivered to the calling thread, nor to those that it starts,
 * while one of these lives. A fault of a thread is: where its signal is
 * blocked, the process ends without any handler. */
class signals_blocked {
public:
    signals_blocked()
    {
        sigset_t all;
        sigfillset(&all);
        sigdelset(&all, SIGSEGV);
        sigdelset(&all, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &all, &saved_);
    }
    ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
    signals_blocked(const signals_blocked &)            = delete;
    signals_blocked &operator=(const signals_blocked &) = delete;

private:
    sigset_t saved_;
};

/* The kernel's struct sched_attr, first version; glibc 2.36 has none, and the
 * kernel's header cannot be included beside sched.h. */
struct scheduling {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns; /* since Linux 6.12: of an ordinary thread its slice */
    uint64_t deadline_ns;
    uint64_t period_ns;
};
static_assert(sizeof(scheduling) == 48);

/* The shortest that there is: __setparam_fair in kernel/sched/syscalls.c. */
constexpr uint64_t slice_ns = 100'000;

/* Let the calling thread run soon after it wakes, also while programs compute
 * on all cores: these give way to a thread with a shorter slice. Older kernels
 * and sandboxes know no such wish. */
void take_short_slices()
{
    scheduling own{};
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) == 0) {
        own.runtime_ns = slice_ns;
        (void)syscall(SYS_sched_setattr, 0, &own, 0);
    }
}

constexpr std::chrono::milliseconds pause_after_failure{10};

/* What takes the warning may fail, too. */
void report(const std::string &name, const char *reason)
{
    try {
        warn("thread %s goes on after a failure%s%s", name.c_str(),
             (reason == nullptr) ? "" : ": ",
             (reason == nullptr) ? "" : reason);
    } catch (...) {
        /* It is tried again, which matters more than the warning. */
    }
}

void run(const std::string &name, const std::function<void()> &body)
{
    for (;;) {
        try {
            body();
            return;
        } catch (const std::exception &error) {
            report(name, error.what());
        } catch (...) {
            report(name, nullptr);
        }
        std::this_thread::sleep_for(pause_after_failure);
    }
}

} // namespace

/* Whoever names another thread looks it up in /proc, and so its end is looked
 * up there, too: on Linux 6.18 who waits for the process has spun in the kernel
 * for a minute then. So it names itself, and is waited for: who looks for it
 * would find it nameless. */
void start_background_thread(const char *name, std::function<void()> body)
{
    const signals_blocked quiet;
    const auto is_named = std::make_shared<std::binary_semaphore>(0);
    std::thread([is_named, name = std::string(name), what = std::move(body)] {
        (void)pthread_setname_np(pthread_self(), name.c_str());
        take_short_slices();
        is_named->release();
        run(name, what);
    }).detach();
    is_named->acquire();
}

} // namespace gaudi::util
