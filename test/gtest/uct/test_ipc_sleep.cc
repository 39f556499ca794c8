/* What a program that sleeps on an interface of gaudi_ipc can rely on. */
#include "common/process_state.h"
#include "gtest/uct/invalidate.h"
#include "gtest/uct/ipc_peer.h"

#include <array>
#include <chrono>
#include <thread>

#include <poll.h>
#include <signal.h>

namespace gaudi::test {

namespace {

class ipc_sleep : public ::testing::Test {
protected:
    void SetUp() override
    {
        load_module();
        collect_logs();
        take_logs();
        ASSERT_EQ(UCS_OK, open_md(copy_md));
        ASSERT_EQ(UCS_OK, open_md(ipc_md, {}, "gaudi_ipc"));
        tl   = std::make_unique<transport>(ipc_md);
        peer = std::make_unique<ipc_peer>();
        peer->connect(tl->address());
        ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(tl->iface, &event_fd));
    }

    void TearDown() override
    {
        const child_result result = peer->quit();
        EXPECT_EQ(0, result.exit_code) << result.error;
        EXPECT_EQ("", result.error);
        tl.reset();
        uct_md_close(ipc_md);
        uct_md_close(copy_md);
        EXPECT_THAT(take_logs(), ::testing::IsEmpty());
    }

    /* What a program does that has nothing else to do. @return false when it
     * would sleep for good. */
    bool progress_or_sleep()
    {
        if ((tl->progress() == 0) &&
            (uct_iface_event_arm(tl->iface, UCT_EVENT_SEND_COMP |
                                                UCT_EVENT_RECV) == UCS_OK)) {
            pollfd wanted{event_fd, POLLIN, 0};
            return ::poll(&wanted, 1, 3000) == 1;
        }
        return true;
    }

#if UCT_API < UCT_VERSION(1, 16) /* from there on they do not wait */
    /* Of memory that the peer holds until it is told to let go. */
    void invalidate_held(const device_buffer &shared, counted_completion &over)
    {
        uct_mem_h memh;
        ASSERT_EQ(UCS_OK, uct_md_mem_reg(ipc_md, shared.address, ipc_peer_bytes,
                                         UCT_MD_MEM_ACCESS_ALL, &memh));
        peer->hold({pack_key(ipc_md, memh), shared.remote()});
        ASSERT_EQ(UCS_OK, invalidate(ipc_md, memh, over));
        EXPECT_EQ(0u, over.calls);
    }
#endif

    uct_md_h copy_md = nullptr;
    uct_md_h ipc_md  = nullptr;
    std::unique_ptr<transport> tl;
    std::unique_ptr<ipc_peer> peer;
    int event_fd = -1;
};

} // namespace

#if UCT_API < UCT_VERSION(1, 16)
TEST_F(ipc_sleep, does_not_miss_the_end_of_an_invalidation)
{
    device_buffer shared(copy_md, ipc_peer_bytes);
    counted_completion over;
    ASSERT_NO_FATAL_FAILURE(invalidate_held(shared, over));
    bool awake = true;
    for (unsigned i = 0; awake && (i < 100); ++i) {
        awake = progress_or_sleep();
    }
    EXPECT_TRUE(awake);
    EXPECT_EQ(0u, over.calls);

    peer->let_go();
    EXPECT_TRUE(eventually([&] {
        awake = awake && progress_or_sleep();
        return !awake || (over.calls > 0);
    }));
    EXPECT_EQ(1u, over.calls);
    EXPECT_EQ(UCS_OK, over.status);
}

/* UCP frees requests, and completions with them, before it closes interfaces.
 */
TEST_F(ipc_sleep, forgets_invalidations_of_closed_interfaces)
{
    device_buffer shared(copy_md, ipc_peer_bytes);
    counted_completion over;
    ASSERT_NO_FATAL_FAILURE(invalidate_held(shared, over));
    tl.reset();
    tl = std::make_unique<transport>(ipc_md);
    peer->let_go();
    for (unsigned i = 0; i < 1000; ++i) {
        tl->progress();
    }
    EXPECT_EQ(0u, over.calls);
}
#endif

/* Without a message or a check of the caller. */
TEST_F(ipc_sleep, ends_when_a_peer_is_killed)
{
    ipc_peer victim;
    uct_ep_h doomed = tl->make_ep(victim.address());
    uct_ep_h too    = tl->make_ep(victim.address());
    uct_ep_h fine   = tl->make_ep(peer->address());
    ASSERT_THAT((std::array{doomed, too, fine}),
                ::testing::Each(::testing::NotNull()));
    std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        victim.process().kill(SIGKILL);
    });
    bool awake = true;
    EXPECT_TRUE(eventually([&] {
        awake = awake && progress_or_sleep();
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
    EXPECT_EQ(UCS_OK, uct_iface_event_arm(tl->iface, UCT_EVENT_RECV));
    EXPECT_EQ(2u, tl->failures.size());
    uct_ep_destroy(doomed);
    uct_ep_destroy(too);
    uct_ep_destroy(fine);
    (void)victim.process().wait();
}

/* Programs end one after the other, and that is no failure. */
TEST_F(ipc_sleep, goes_on_when_a_peer_has_closed_its_interface)
{
    auto other  = std::make_unique<ipc_peer>();
    uct_ep_h ep = tl->make_ep(other->address());
    ASSERT_NE(nullptr, ep);
    EXPECT_EQ(0, other->quit().exit_code);
    other.reset();
    const unsigned looks = 3 << 14; /* more than one look at the peers */
    for (unsigned i = 0; i < looks; ++i) {
        tl->progress();
    }
    (void)uct_iface_event_arm(tl->iface, UCT_EVENT_RECV);
    tl->progress();
    EXPECT_THAT(tl->failures, ::testing::IsEmpty());
    uct_ep_destroy(ep);
}

/* Over both transports: UCP takes either within a process. */
TEST_F(ipc_sleep, ends_when_memory_of_a_closed_interface_is_used)
{
    for (uct_md_h md : {copy_md, ipc_md}) {
        transport own(md);
        auto closing = std::make_unique<transport>(md);
        uct_ep_h ep  = own.make_ep(closing->address());
        ASSERT_NE(nullptr, ep);
        uint64_t here  = 1;
        uint64_t there = 0;
        const auto put = [&] {
            return uct_ep_put_short(ep, &here, sizeof(here),
                                    reinterpret_cast<uint64_t>(&there),
                                    UCT_INVALID_RKEY);
        };
        EXPECT_EQ(UCS_OK, put());
        const interface_address address = closing->address();
        closing.reset();
        EXPECT_THAT(own.failures, ::testing::IsEmpty());
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, put());
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, put());
        own.progress();
        EXPECT_THAT(own.failures, ::testing::ElementsAre(
                                      std::pair(ep, UCS_ERR_ENDPOINT_TIMEOUT)));
        uct_ep_destroy(ep);
        EXPECT_EQ(nullptr, own.make_ep(address));
    }
}

namespace {

/* A message that waits for room. */
struct waiting_message : uct_pending_req_t {
    explicit waiting_message(uct_ep_h to) : uct_pending_req_t{}, ep(to)
    {
        func = [](uct_pending_req_t *self) {
            auto *message = static_cast<waiting_message *>(self);
            message->status =
                uct_ep_am_short(message->ep, ipc_echo_id, 0, nullptr, 0);
            return message->status;
        };
    }
    uct_ep_h ep;
    ucs_status_t status = UCS_INPROGRESS;
};

} // namespace

/* No event tells of room in the queue of a peer. */
TEST_F(ipc_sleep, is_refused_while_a_message_waits_for_a_peer_that_is_too_slow)
{
    unsigned echoes = 0;
    ASSERT_EQ(UCS_OK, uct_iface_set_am_handler(
                          tl->iface, ipc_echo_id,
                          [](void *arg, void *, size_t, unsigned) {
                              ++*static_cast<unsigned *>(arg);
                              return UCS_OK;
                          },
                          &echoes, 0));
    uct_ep_h ep = tl->make_ep(peer->address());
    ASSERT_NE(nullptr, ep);
    peer->process().kill(SIGSTOP);
    unsigned sent = 0;
    while (uct_ep_am_short(ep, ipc_echo_id, 0, nullptr, 0) == UCS_OK) {
        ++sent;
    }
    waiting_message last(ep);
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &last, 0));
    for (unsigned i = 0; i < 10; ++i) {
        tl->progress();
        EXPECT_EQ(UCS_ERR_BUSY,
                  uct_iface_event_arm(tl->iface,
                                      UCT_EVENT_SEND_COMP | UCT_EVENT_RECV));
    }
    peer->process().kill(SIGCONT);
    EXPECT_TRUE(eventually(
        [&] { return !progress_or_sleep() || (echoes == sent + 1); }));
    EXPECT_EQ(UCS_OK, last.status);
    EXPECT_EQ(sent + 1, echoes);
    uct_ep_destroy(ep);
}

} // namespace gaudi::test
