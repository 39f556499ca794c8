/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts over PCIe to a card that answers early for what others write: they end
 * when its process has flushed it. In children: the box, and routes, are what
 * they are for a whole process. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"

#include <array>
#include <string>

#include <signal.h>
#include <sys/resource.h>

namespace gaudi::test {

namespace {

child_options over_pcie(const char *habit = "rests", const char *how = "early")
{
    return {{{"HLTHUNK_EMU_POSTED", how},
             {"UCX_GAUDI_IPC_ROUTES", "pcie"},
             {peer_habit, habit}}};
}

/* The test process and a peer, each with a card. */
struct pair : with_a_peer {
    /* To be written to, and to have been: the peer has been asked once. */
    pair() { put(1); }

    void put(uint64_t seed)
    {
        fill_pattern(host.data(), host.size(), seed);
        EXPECT_EQ(UCS_OK,
                  target().put_short(host.data(), host.size(), remote()));
        EXPECT_TRUE(peer.has(true, host.size(), seed));
    }

    /* Start one, of device memory here. */
    void start(uint64_t seed, uct_completion_t *done)
    {
        fill_pattern(host.data(), host.size(), seed);
        EXPECT_EQ(UCS_OK,
                  copy.put_short(host.data(), host.size(), device.remote()));
        target().start_put(device.address, host.size(), remote(), done);
    }

    /* Until the card here has written that and read it back. */
    void await_read_back(uint64_t jobs_before)
    {
        EXPECT_TRUE(tl->progress_until(
            [&] { return engine_hooks::counters().jobs >= jobs_before + 2; }));
        tl->progress_much();
    }

    std::vector<char> host     = std::vector<char>(100);
    const device_buffer device = device_buffer(copy_md, 100);
};

uint64_t jobs_so_far()
{
    return engine_hooks::counters().jobs;
}

/* By every call, from host and device memory here; each is there when it has
 * ended. */
void put_all()
{
    pair p;
    std::vector<char> host(ipc_peer_bytes);
    device_buffer device(p.copy_md, ipc_peer_bytes);
    uint64_t seed = 1;
    for (const bool here : {false, true}) {
        void *local     = here ? device.address : host.data();
        const auto fill = [&](size_t size) {
            fill_pattern(host.data(), size, ++seed);
            if (here) {
                ASSERT_EQ(UCS_OK,
                          p.copy.put_short(host.data(), size, device.remote()));
            }
        };
        for (const size_t size : {size_t{1}, size_t{4097}, ipc_peer_bytes}) {
            SCOPED_TRACE(size);
            fill(size);
            counted_completion done;
            p.target().start_put(local, size, p.remote(), &done);
            EXPECT_TRUE(p.tl->progress_until([&] { return done.calls > 0; }));
            EXPECT_TRUE(ended_once(done));
            EXPECT_TRUE(p.peer.has(true, size, seed));

            fill(size);
            EXPECT_EQ(UCS_OK, p.target().put_short(local, size, p.remote()));
            EXPECT_TRUE(p.peer.has(true, size, seed));
            if (size <= p.tl->attr.cap.put.max_bcopy) {
                fill_pattern(host.data(), size, ++seed);
                EXPECT_EQ(static_cast<ssize_t>(size),
                          p.target().put_bcopy(host.data(), size, p.remote()));
                p.flush();
                EXPECT_TRUE(p.peer.has(true, size, seed));
            }
        }
    }
}

} // namespace

TEST_IN_CHILD(owner_flush, ends_puts_to_a_peer_that_makes_no_progress,
              over_pcie())
{
    put_all();
}

TEST_IN_CHILD(owner_flush, ends_puts_to_a_peer_that_sleeps, over_pcie("sleeps"))
{
    put_all();
}

TEST_IN_CHILD(owner_flush, ends_puts_to_a_peer_that_polls, over_pcie("polls"))
{
    put_all();
}

TEST_IN_CHILD(owner_flush, wakes_who_sleeps_until_a_put_is_there, over_pcie())
{
    pair p;
    for (unsigned i = 0; i < 100; ++i) {
        counted_completion done;
        p.start(i, &done);
        ASSERT_TRUE(p.tl->sleep_until([&] { return done.calls > 0; })) << i;
        EXPECT_EQ(UCS_OK, done.status);
    }
    EXPECT_TRUE(p.peer.has(true, p.host.size(), 99));
}

TEST_IN_CHILD(owner_flush, is_shared_by_puts_that_were_read_back_together,
              over_pcie())
{
    pair p;
    std::array<counted_completion, 8> done;
    const uint64_t flushes = p.peer.flushes();
    const uint64_t moved   = moved_bytes();
    engine_hooks::pause(true);
    /* The first one has nothing before it: a read of its own follows. */
    for (counted_completion &each : done) {
        p.target().start_put(p.device.address, 8, p.remote(), &each);
    }
    engine_hooks::pause(false);
    ASSERT_TRUE(
        eventually([&] { return moved_bytes() >= moved + 8 * done.size(); }));
    p.flush();
    EXPECT_THAT(done, ::testing::Each(::testing::ResultOf(
                          [](const auto &each) { return ended_once(each); },
                          ::testing::IsTrue())));
    EXPECT_GE(flushes + 3, p.peer.flushes());
}

/* Which holds up what it has to flush, and nothing else. */
TEST_IN_CHILD(owner_flush, waits_for_a_peer_that_is_stopped, over_pcie())
{
    pair p;
    counted_completion done[2];
    p.peer.process().stop();
    const uint64_t before = jobs_so_far();
    p.start(2, &done[0]);
    p.await_read_back(before + 1);
    EXPECT_EQ(0u, done[0].calls);
    std::vector<char> seen(p.host.size());
    p.target().start_get(seen.data(), seen.size(), p.remote(), &done[1]);
    EXPECT_TRUE(p.tl->progress_until([&] { return done[1].calls > 0; }));
    EXPECT_TRUE(has_pattern(seen.data(), seen.size(), 2));
    EXPECT_EQ(0u, done[0].calls);
    p.peer.process().kill(SIGCONT);
    p.flush();
    EXPECT_TRUE(ended_once(done[0]));
    EXPECT_TRUE(p.peer.has(true, p.host.size(), 2));
}

TEST_IN_CHILD(owner_flush, ends_with_a_peer_that_is_killed, over_pcie())
{
    pair p;
    ipc_peer victim;
    uct_ep_h ep = p.tl->make_ep(victim.address);
    {
        const unpacked_key key(victim.device.key);
        const endpoint target{ep, key.rkey()};
        EXPECT_EQ(UCS_OK,
                  target.put_short(p.host.data(), 8, victim.device.address));
        victim.process().stop();
        const uint64_t before = jobs_so_far();
        counted_completion done;
        target.start_put(p.device.address, 8, victim.device.address, &done);
        p.await_read_back(before);
        EXPECT_EQ(0u, done.calls);
        victim.process().kill(SIGKILL);
        EXPECT_TRUE(p.tl->progress_until([&] { return done.calls > 0; }));
        p.tl->progress_much();
        EXPECT_EQ(1u, done.calls);
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, done.status);
    }
    uct_ep_destroy(ep);
    p.put(3);
}

/* What began before, is there. */
TEST_IN_CHILD(owner_flush, is_made_when_the_key_has_ended, over_pcie())
{
    pair p;
    counted_completion done;
    engine_hooks::pause(true);
    p.target().start_put(p.device.address, 8, p.remote(), &done);
    p.peer.end_key();
    engine_hooks::pause(false);
    p.flush();
    EXPECT_TRUE(ended_once(done));
}

TEST_IN_CHILD(owner_flush, tells_of_a_card_that_its_owner_loses, over_pcie())
{
    pair p;
    for (const char *fault : {"now=reset", "now=remove", "flush=ENODEV"}) {
        SCOPED_TRACE(fault);
        ipc_peer victim;
        uct_ep_h ep = p.tl->make_ep(victim.address);
        {
            const unpacked_key key(victim.device.key);
            const endpoint target{ep, key.rkey()};
            const uint64_t there = victim.device.address;
            EXPECT_EQ(UCS_OK, target.put_short(p.host.data(), 8, there));
            engine_hooks::pause(true);
            counted_completion done;
            target.start_put(p.device.address, 8, there, &done);
            victim.break_card(fault);
            engine_hooks::pause(false);
            EXPECT_TRUE(p.tl->progress_until([&] { return done.calls > 0; }));
            EXPECT_EQ(UCS_ERR_NO_DEVICE, done.status);
        }
        uct_ep_destroy(ep);
        (void)take_logs();
        (void)victim.quit();
        p.put(4);
    }
}

/* An engine that goes does not wait for good. */
TEST_IN_CHILD(owner_flush, is_given_up_when_the_interface_is_closed,
              over_pcie())
{
    pair p;
    counted_completion done;
    p.peer.process().stop();
    const uint64_t before = jobs_so_far();
    p.start(2, &done);
    p.await_read_back(before + 1);
    EXPECT_EQ(0u, done.calls);
    p.reopen();
    EXPECT_EQ(1u, done.calls);
    EXPECT_NE(UCS_OK, done.status);
    (void)take_logs();
    p.peer.process().kill(SIGCONT);
}

/* Nobody would know when it is there. */
TEST_IN_CHILD(owner_flush, that_nobody_can_be_asked_for_makes_puts_fail,
              over_pcie())
{
    pair p;
    ipc_peer other;
    uct_ep_h ep = p.tl->make_ep(other.address);
    {
        const unpacked_key key(other.device.key);
        const endpoint target{ep, key.rkey()};
        const uint64_t there = other.device.address;
        char byte            = 0;
        EXPECT_EQ(UCS_OK, target.get_short(&byte, 1, there));
        rlimit files{};
        getrlimit(RLIMIT_FSIZE, &files);
        const rlimit few{rlim_t{1} << 18, files.rlim_max};
        setrlimit(RLIMIT_FSIZE, &few);
        EXPECT_NE(UCS_OK, target.put_short(&byte, 1, there));
        EXPECT_THAT(take_logs(), ::testing::Contains(::testing::HasSubstr(
                                     "cannot reach memory")));
        EXPECT_EQ(UCS_OK, target.get_short(&byte, 1, there));
        setrlimit(RLIMIT_FSIZE, &files);
        EXPECT_EQ(UCS_OK, target.put_short(&byte, 1, there));
    }
    uct_ep_destroy(ep);
}

/* Then a put asks nobody. */
TEST_IN_CHILD(owner_flush, is_not_wanted_where_cards_do_not_answer_early,
              over_pcie("rests", "y"))
{
    pair p;
    p.peer.process().stop();
    EXPECT_EQ(UCS_OK,
              p.target().put_short(p.host.data(), p.host.size(), p.remote()));
    p.peer.process().kill(SIGCONT);
    EXPECT_EQ(0u, count_mappings("gaudi_ipc_copies"));
    EXPECT_EQ(0u, p.peer.flushes());
}

} // namespace gaudi::test
