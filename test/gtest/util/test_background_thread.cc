/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that serve a program without being seen by it. */
#include "util/background_thread.h"

#include "util/warning.h"

#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

sigset_t signal_mask()
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return mask;
}

/* Of the calling thread; 0: the system does not tell (before Linux 6.12). */
uint64_t slice_ns()
{
    struct {
        uint32_t size;
        uint32_t policy;
        uint64_t flags;
        uint64_t nice_and_priority;
        uint64_t runtime_ns;
        uint64_t deadline_and_period[2];
    } own{};
    return (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) == 0)
               ? own.runtime_ns
               : 0;
}

} // namespace

TEST(background_thread, says_why_it_goes_on_and_may_fail_at_that)
{
    static std::string warned; /* before the thread serves */
    util::set_warning_handler([](const char *text) {
        warned = text;
        throw std::runtime_error("no log");
    });
    auto served = std::make_shared<std::promise<void>>();
    auto end    = served->get_future();
    util::start_background_thread("gaudi-test", [served, calls = 0]() mutable {
        if (calls++ == 0) {
            throw std::runtime_error("no luck");
        }
        served->set_value();
    });
    end.get();
    util::set_warning_handler(nullptr);
    EXPECT_THAT(warned, ::testing::AllOf(::testing::HasSubstr("gaudi-test"),
                                         ::testing::HasSubstr("no luck")));
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
    for (const int number : {SIGSEGV, SIGBUS}) {
        EXPECT_EQ(0, sigismember(&there, number)) << number << " of its own";
    }
}

TEST(background_thread, gets_a_core_before_programs_that_compute)
{
    auto seen = std::make_shared<std::promise<uint64_t>>();
    util::start_background_thread("gaudi-test",
                                  [seen] { seen->set_value(slice_ns()); });
    const uint64_t there = seen->get_future().get();
    const uint64_t here  = slice_ns();
    EXPECT_LE(there, here);
    EXPECT_TRUE((there < here) || (here == 0)) << here << " ns both";
}

} // namespace gaudi::test
