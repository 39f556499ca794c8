/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for completions with a file descriptor instead of polling. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <chrono>
#include <random>
#include <thread>

#include <poll.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr int deadline_ms  = 10000;
constexpr size_t job_bytes = 4096;
constexpr char watcher[]   = "ucx-gaudi-wait";

class wakeup : public uct {
protected:
    wakeup() { EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(tl->iface, &fd)); }

    [[nodiscard]] ucs_status_t arm() const
    {
        return tl->arm(UCT_EVENT_SEND_COMP);
    }

    [[nodiscard]] bool is_readable(int timeout_ms) const
    {
        pollfd wanted{fd, POLLIN, 0};
        return poll(&wanted, 1, timeout_ms) == 1;
    }

    /* Once all that could write it waits for the card itself. */
    void expect_silence() const
    {
        EXPECT_TRUE(eventually([] {
            const auto watchers = threads_named(watcher);
            return !watchers.empty() && are_blocked(watchers);
        }));
        EXPECT_FALSE(is_readable(0));
    }

    void sleep_until(const counted_completion &completion)
    {
        ASSERT_TRUE(tl->sleep_until([&] { return completion.calls > 0; }))
            << "a wakeup was lost";
    }

    int fd = -1;
    device_buffer device{md, 16 << 20};
    std::vector<char> host = std::vector<char>(16 << 20);
};

/* Stops the card for the life of this object, or until resumed. */
class stopped_card {
public:
    stopped_card() { engine_hooks::pause(true); }
    ~stopped_card() { resume(); }
    stopped_card(const stopped_card &)            = delete;
    stopped_card &operator=(const stopped_card &) = delete;

    void resume()
    {
        if (!std::exchange(resumed_, true)) {
            engine_hooks::pause(false);
        }
    }

private:
    bool resumed_ = false;
};

} // namespace

TEST_F(wakeup, is_what_ucp_looks_for)
{
    EXPECT_EQ(UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                  UCT_IFACE_FLAG_EVENT_FD,
              tl->attr.cap.event_flags);
    int again;
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(tl->iface, &again));
    EXPECT_EQ(fd, again);
}

TEST_F(wakeup, an_idle_interface_arms_and_stays_silent)
{
    for (unsigned events = 0; events <= (UCT_EVENT_SEND_COMP | UCT_EVENT_RECV);
         ++events) {
        EXPECT_EQ(UCS_OK, tl->arm(events));
        EXPECT_FALSE(is_readable(0));
    }
}

TEST_F(wakeup, nothing_is_armed_while_a_completion_waits_for_progress)
{
    counted_completion completion;
    tl->start_put(host.data(), 0, device.remote(), &completion);
    EXPECT_EQ(UCS_ERR_BUSY, arm());
    EXPECT_EQ(0u, completion.calls) << "only progress calls completions";
    tl->progress();
    EXPECT_EQ(1u, completion.calls);
    EXPECT_EQ(UCS_OK, arm());
}

TEST_F(wakeup, comes_when_the_job_ends)
{
    counted_completion completion;
    stopped_card card;
    tl->start_put(host.data(), job_bytes, device.remote(), &completion);
    ASSERT_EQ(UCS_OK, arm());
    expect_silence();
    card.resume();
    EXPECT_TRUE(is_readable(deadline_ms));
    sleep_until(completion);
    EXPECT_EQ(UCS_OK, completion.status);
}

TEST_F(wakeup, comes_for_what_has_to_wait_for_another_interface)
{
    /* The other one has all jobs that the card takes. */
    transport other(md);
    registration registered(md, host.data(), host.size());
    counted_completion filled;
    filled.count = 64;
    counted_completion completion;
    stopped_card card;
    for (int i = 0; i < filled.count; ++i) {
        other.start_put(host.data(), job_bytes, device.remote(), &filled);
    }
    tl->start_put(host.data(), job_bytes, device.remote(), &completion);
    ASSERT_EQ(UCS_OK, arm());
    expect_silence();
    card.resume();
    sleep_until(completion);
    while (filled.calls == 0) {
        other.progress();
    }
}

TEST_F(wakeup, comes_for_pending_requests)
{
    pending_request waiting([] { return UCS_OK; });
    counted_completion completion;
    completion.count = 0;
    stopped_card card;
    ucs_status_t status;
    do {
        ++completion.count;
        status = tl->try_put_zcopy(host.data(), job_bytes, device.remote(),
                                   &completion);
    } while (status == UCS_INPROGRESS);
    --completion.count;
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(tl->ep, &waiting, 0));
    ASSERT_EQ(UCS_OK, arm());
    card.resume();
    ASSERT_TRUE(tl->sleep_until([&] { return waiting.done; }))
        << "a wakeup was lost";
    sleep_until(completion);
}

TEST_F(wakeup, an_interface_closes_while_its_jobs_are_watched)
{
    counted_completion completion;
    engine_hooks::pause(true);
    tl->start_put(host.data(), job_bytes, device.remote(), &completion);
    ASSERT_EQ(UCS_OK, arm());
    std::thread resumer([closing = gettid()] {
        EXPECT_TRUE(eventually([=] { return is_blocked(closing); }));
        engine_hooks::pause(false);
    });
    tl.reset();
    resumer.join();
    EXPECT_EQ(1u, completion.calls);
    tl = std::make_unique<transport>(md);
}

TEST_F(wakeup, is_never_lost)
{
    std::mt19937 random(17);
    for (unsigned round = 0; round < 300; ++round) {
        SCOPED_TRACE(round);
        const size_t bytes = 1 + random() % (round % 10 == 0 ? 4000000 : 70000);
        const bool stops   = (random() % 2 == 0);
        const bool is_put  = (random() % 2 == 0);
        counted_completion completion;
        std::jthread resumer;
        const unsigned resume_us = random() % 2000;
        if (stops) {
            engine_hooks::pause(true);
            resumer = std::jthread([resume_us] {
                std::this_thread::sleep_for(
                    std::chrono::microseconds(resume_us));
                engine_hooks::pause(false);
            });
        }
        const ucs_status_t status =
            is_put ? tl->put_zcopy(host.data(), bytes, device.remote(),
                                   &completion)
                   : tl->get_zcopy(host.data(), bytes, device.remote(),
                                   &completion);
        EXPECT_EQ(UCS_INPROGRESS, status);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        ASSERT_NO_FATAL_FAILURE(sleep_until(completion));
    }
}

TEST_F(wakeup, needs_no_thread_until_somebody_arms)
{
    EXPECT_TRUE(child_passes("uses_the_card_without_arming"));
}

GAUDI_CHILD(uses_the_card_without_arming)
{
    const opened_domain md;
    device_buffer device(md, job_bytes);
    transport tl(md);
    std::vector<char> host(job_bytes);
    counted_completion completion;
    stopped_card card;
    int fd;
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(tl.iface, &fd));
    tl.start_put(host.data(), job_bytes, device.remote(), &completion);
    GAUDI_CHILD_REQUIRE(count_threads(watcher) == 0);
    EXPECT_EQ(UCS_OK, uct_iface_event_arm(tl.iface, UCT_EVENT_SEND_COMP));
    GAUDI_CHILD_REQUIRE(eventually([] { return count_threads(watcher) == 1; }));
    card.resume();
    tl.flush();
    return 0;
}

} // namespace gaudi::test
