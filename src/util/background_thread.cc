#include "util/background_thread.h"

#include "util/warning.h"

#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace gaudi::util {

namespace {

/* No signal is delivered to the calling thread, nor to those that it starts,
 * while one of these lives. */
class signals_blocked {
public:
    signals_blocked()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &saved_);
    }
    ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
    signals_blocked(const signals_blocked &)            = delete;
    signals_blocked &operator=(const signals_blocked &) = delete;

private:
    sigset_t saved_;
};

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

void start_background_thread(const char *name, std::function<void()> body)
{
    const signals_blocked quiet;
    std::thread thread(run, std::string(name), std::move(body));
    /* Not left to the thread: who looks for it would find it nameless. */
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
}

} // namespace gaudi::util
