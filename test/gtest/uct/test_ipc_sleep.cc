/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program that sleeps on an interface of gaudi_ipc can rely on. */
#include "common/process_state.h"
#include "gtest/uct/peers.h"

#include <array>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

class ipc_sleep : public beside_a_peer {
protected:
    ipc_sleep() { peer.connect(tl->address()); }
};

} // namespace

/* Without a further message or a check of the caller. */
TEST_F(ipc_sleep, ends_when_a_peer_is_killed)
{
    ipc_peer victim;
    uct_ep_h doomed = tl->make_ep(victim.address);
    uct_ep_h too    = tl->make_ep(victim.address);
    uct_ep_h fine   = tl->make_ep(peer.address);
    ASSERT_THAT((std::array{doomed, too, fine}),
                ::testing::Each(::testing::NotNull()));
    /* It may have closed its interface before it saw an unused link. */
    ASSERT_EQ(UCS_OK, uct_ep_am_short(doomed, ipc_echo_id, 0, nullptr, 0));
    std::thread killer([&, sleeper = gettid()] {
        EXPECT_TRUE(eventually([=] { return is_blocked(sleeper); }));
        victim.process().kill(SIGKILL);
    });
    bool awake = true;
    EXPECT_TRUE(eventually([&] {
        awake = awake && tl->progress_or_sleep();
        return !awake || (tl->failures.size() == 2);
    }));
    killer.join();
    EXPECT_TRUE(awake);
    EXPECT_THAT(tl->failures, ::testing::UnorderedElementsAre(
                                  std::pair(doomed, UCS_ERR_ENDPOINT_TIMEOUT),
                                  std::pair(too, UCS_ERR_ENDPOINT_TIMEOUT)));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              uct_ep_am_short(doomed, ipc_echo_id, 0, nullptr, 0));

    /* It is told once. */
    while (tl->progress() > 0) {}
    EXPECT_EQ(UCS_OK, tl->arm(UCT_EVENT_RECV));
    EXPECT_EQ(2u, tl->failures.size());
    uct_ep_destroy(doomed);
    uct_ep_destroy(too);
    uct_ep_destroy(fine);
    (void)victim.process().wait();
}

/* As UCP sleeps beside interfaces that its worker does not progress: it has
 * looked for messages before it arms, and this one came in between. */
TEST_F(ipc_sleep, is_short_where_events_alone_are_looked_at)
{
    uct_ep_h to = tl->make_ep(peer.address);
    ASSERT_NE(nullptr, to);
    const auto take = [](void *, void *, size_t, unsigned) { return UCS_OK; };
    EXPECT_EQ(UCS_OK, uct_iface_set_am_handler(tl->iface, ipc_echo_id, take,
                                               nullptr, 0));
    uct_iface_progress_disable(tl->iface,
                               UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(to, ipc_echo_id, 0, nullptr, 0));
    peer.flush_echoes(1);
    EXPECT_EQ(UCS_OK, tl->arm(UCT_EVENT_RECV));
    pollfd wanted{-1, POLLIN, 0};
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(tl->iface, &wanted.fd));
    EXPECT_EQ(1, poll(&wanted, 1, 0));
    EXPECT_NE(0u, uct_iface_progress(tl->iface));
    EXPECT_EQ(UCS_OK, tl->arm(UCT_EVENT_RECV));
    EXPECT_EQ(0, poll(&wanted, 1, 0));
    uct_ep_destroy(to);
}

/* Programs end one after the other, and that is no failure. */
TEST_F(ipc_sleep, goes_on_when_a_peer_has_closed_its_interface)
{
    auto other  = std::make_unique<ipc_peer>();
    uct_ep_h to = tl->make_ep(other->address);
    ASSERT_NE(nullptr, to);
    EXPECT_EQ(0, other->quit().exit_code);
    other.reset();
    const unsigned looks = 3 << 14; /* more than one look at the peers */
    for (unsigned i = 0; i < looks; ++i) {
        tl->progress();
    }
    (void)tl->arm(UCT_EVENT_RECV);
    tl->progress();
    EXPECT_THAT(tl->failures, ::testing::IsEmpty());
    uct_ep_destroy(to);
}

/* Over both transports: UCP takes either within a process. */
TEST_F(ipc_sleep, ends_when_memory_of_a_closed_interface_is_used)
{
    for (uct_md_h md : {uct_md_h{copy_md}, uct_md_h{ipc_md}}) {
        transport own(md);
        auto closing = std::make_unique<transport>(md);
        uct_ep_h to  = own.make_ep(closing->address());
        ASSERT_NE(nullptr, to);
        uint64_t here  = 1;
        uint64_t there = 0;
        const auto put = [&] {
            return endpoint{to}.put_short(&here, sizeof(here),
                                          reinterpret_cast<uint64_t>(&there));
        };
        EXPECT_EQ(UCS_OK, put());
        const interface_address address = closing->address();
        closing.reset();
        EXPECT_THAT(own.failures, ::testing::IsEmpty());
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(UCS_OK, put()); /* and lost, sooner or later */
            own.progress();
            return !own.failures.empty();
        }));
        EXPECT_THAT(own.failures, ::testing::ElementsAre(
                                      std::pair(to, UCS_ERR_ENDPOINT_TIMEOUT)));
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, put());
        uct_ep_destroy(to);
        EXPECT_EQ(nullptr, own.make_ep(address));
    }
}

/* No event tells of room in the queue of a peer. */
TEST_F(ipc_sleep, is_refused_while_a_message_waits_for_a_peer_that_is_too_slow)
{
    size_t echoes = 0;
    ASSERT_EQ(UCS_OK, uct_iface_set_am_handler(
                          tl->iface, ipc_echo_id,
                          [](void *arg, void *, size_t, unsigned) {
                              ++*static_cast<size_t *>(arg);
                              return UCS_OK;
                          },
                          &echoes, 0));
    peer.process().kill(SIGSTOP);
    const size_t sent = fill_queue(ep);
    pending_request last(
        [this] { return uct_ep_am_short(ep, ipc_echo_id, 0, nullptr, 0); });
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &last, 0));
    for (unsigned i = 0; i < 10; ++i) {
        tl->progress();
        EXPECT_EQ(UCS_ERR_BUSY, tl->arm());
    }
    peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually(
        [&] { return !tl->progress_or_sleep() || (echoes == sent + 1); }));
    EXPECT_TRUE(last.done);
    EXPECT_EQ(sent + 1, echoes);
}

} // namespace gaudi::test
