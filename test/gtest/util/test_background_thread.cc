/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that serve a program without being seen by it. */
#include "util/background_thread.h"

#include "util/warning.h"

#include "common/process_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace gaudi::test {

namespace {

sigset_t signal_mask()
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return mask;
}

} // namespace

TEST(background_thread, has_its_name_when_the_call_returns)
{
    /* All live until the end: a listing can lack a thread when another ends. */
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future().share();
    for (unsigned i = 0; i < 50; ++i) {
        const std::string name = "gaudi-test-" + std::to_string(i);
        util::start_background_thread(name.c_str(), [ended] { ended.wait(); });
        EXPECT_EQ(1u, count_threads(name));
    }
    end.set_value();
}

/* What the warning handler does in a test; it knows nothing else. */
std::function<void(const char *)> *on_warning = nullptr;

class background_thread_warning : public ::testing::Test {
protected:
    ~background_thread_warning() override
    {
        util::set_warning_handler(nullptr);
        on_warning = nullptr;
    }

    /* Start a thread whose first call throws; wait until the next one ends. */
    void fail_once(std::function<void(const char *)> handler)
    {
        handler_   = std::move(handler);
        on_warning = &handler_;
        util::set_warning_handler(
            [](const char *text) { (*on_warning)(text); });

        auto served = std::make_shared<std::promise<void>>();
        auto end    = served->get_future();
        util::start_background_thread(
            "gaudi-test", [served, calls = 0]() mutable {
                if (calls++ == 0) {
                    throw std::runtime_error("no luck");
                }
                served->set_value();
            });
        ASSERT_EQ(std::future_status::ready,
                  end.wait_for(std::chrono::seconds(20)));
    }

private:
    std::function<void(const char *)> handler_;
};

TEST_F(background_thread_warning, says_why_the_thread_goes_on)
{
    std::string warned; /* before the thread serves */
    fail_once([&](const char *text) { warned = text; });
    EXPECT_EQ("thread gaudi-test goes on after a failure: no luck", warned);
}

TEST_F(background_thread_warning, may_fail_itself)
{
    fail_once([](const char *) { throw std::runtime_error("no log"); });
}

TEST(background_thread, runs_no_signal_handler_of_the_application)
{
    const sigset_t before = signal_mask();
    ASSERT_EQ(0, sigismember(&before, SIGUSR1));

    auto seen = std::make_shared<std::promise<sigset_t>>();
    util::start_background_thread("gaudi-test",
                                  [seen] { seen->set_value(signal_mask()); });
    const sigset_t there = seen->get_future().get();
    const sigset_t after = signal_mask();
    for (const int number : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1}) {
        EXPECT_EQ(1, sigismember(&there, number)) << number;
        EXPECT_EQ(sigismember(&before, number), sigismember(&after, number))
            << number << " of the caller";
    }
}

} // namespace gaudi::test
