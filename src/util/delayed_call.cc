#include "util/delayed_call.h"

#include "util/background_thread.h"

#include <atomic>
#include <mutex>
#include <semaphore>
#include <system_error>
#include <thread>
#include <utility>

namespace gaudi::util {

struct delayed_call::shared {
    explicit shared(std::function<void()> what) : call(std::move(what)) {}

    void run()
    {
        for (;;) {
            wake.acquire();
            std::this_thread::sleep_for(delay);
            const std::lock_guard<std::mutex> guard(calling);
            if (stopped) {
                return;
            }
            asked = false; /* first: what is asked for now comes after */
            call();
        }
    }

    const std::function<void()> call;
    std::atomic<bool> started{false};
    std::atomic<bool> asked{false};
    std::counting_semaphore<> wake{0};
    std::mutex calling; /* held across the call */
    bool stopped = false;
};

delayed_call::delayed_call(std::function<void()> call)
    : shared_(std::make_shared<shared>(std::move(call)))
{}

std::string delayed_call::start()
{
    if (shared_->started.load(std::memory_order_relaxed) ||
        shared_->started.exchange(true)) {
        return {};
    }
    try {
        start_background_thread("ucx-gaudi-tidy",
                                [with = shared_] { with->run(); });
    } catch (const std::system_error &error) {
        shared_->started = false;
        return error.what();
    }
    return {};
}

void delayed_call::ask()
{
    if (!shared_->asked.exchange(true)) {
        shared_->wake.release();
    }
}

void delayed_call::stop()
{
    {
        const std::lock_guard<std::mutex> guard(shared_->calling);
        shared_->stopped = true;
    }
    shared_->wake.release();
}

} // namespace gaudi::util
