/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of another process: through host memory that both have, which
 * that process's cards copy to and from (ipc/serving), and over the cards'
 * ports. In children: routes are read once per process. */
#include "gtest/uct/peers.h"

#include "common/ability.h"
#include "common/denial.h"
#include "common/framework.h"
#include "common/namespaces.h"
#include "common/process_state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

child_options over_host(const char *habit          = "rests",
                        child_environment settings = {})
{
    settings.emplace_back("UCX_GAUDI_IPC_ROUTES", "host");
    settings.emplace_back(peer_habit, habit);
    return {settings};
}

/* Over the cards' ports. */
child_options over_ports(const char *habit          = "rests",
                         child_environment settings = {},
                         const char *routes         = "ports")
{
    settings.emplace_back("UCX_GAUDI_IPC_ROUTES", routes);
    settings.emplace_back("HLTHUNK_EMU_PORTS", "y");
    settings.emplace_back(peer_habit, habit);
    return {settings};
}

/* The same where host memory here is used: beside a framework they do not reach
 * that. */
child_options from_host_over_ports(const char *habit = "rests")
{
    return over_ports(habit, {},
                      runs_beside_framework() ? "ports,host" : "ports");
}

/* The test process and a peer, each with a card. */
using pair = with_a_peer;

using many = std::array<counted_completion, 40>;

/* Start to write device memory of a peer, again and again. */
void put_much(const endpoint &target, std::vector<char> &from, uint64_t remote,
              many &puts)
{
    for (counted_completion &each : puts) {
        target.start_put(from.data(), from.size(), remote, &each);
    }
}

template <size_t N>
unsigned count_ended(const std::array<counted_completion, N> &all)
{
    return static_cast<unsigned>(std::ranges::count_if(
        all, [](const auto &each) { return each.calls > 0; }));
}

::testing::AssertionResult each_ended_once(transport &by, const many &all)
{
    const bool ended =
        by.progress_until([&] { return count_ended(all) == all.size(); });
    by.progress_much();
    return (ended && std::ranges::all_of(
                         all, [](const auto &each) { return each.calls == 1; }))
               ? ::testing::AssertionSuccess()
               : ::testing::AssertionFailure()
                     << count_ended(all) << " of " << all.size();
}

/* Host memory of a peer that unmaps it while the card here uses it. */
class host_memory_of_a_peer : public ::testing::TestWithParam<bool> {
protected:
    void SetUp() override
    {
        if (GetParam()) {
            GAUDI_SKIP_IF(why_no_namespaces(pod_namespaces));
        }
    }

    [[nodiscard]] static child_options options()
    {
        return GetParam() ? as_pods(over_host()) : over_host();
    }
};

} // namespace

/* Which engines reach, and no ports. */
TEST_IN_CHILD(ports_way, leaves_imported_memory_to_host_memory,
              {{{"UCX_GAUDI_IPC_ROUTES", "ports,host"},
                {"HLTHUNK_EMU_PORTS", "y"},
                {"HLTHUNK_EMU_IMPORT", "y"}}})
{
    pair p;
    p.peer.fill(1);
    constexpr size_t size = exporting_process::size;
    const device_buffer own(p.copy_md, size);
    const auto moves = [&](bool put, void *here) {
        counted_completion done;
        put ? p.target().start_put(here, size, p.remote(), &done)
            : p.target().start_get(here, size, p.remote(), &done);
        EXPECT_TRUE(p.tl->progress_until([&] { return done.calls > 0; }));
        return done.status == UCS_OK;
    };
    EXPECT_TRUE(eventually([&] {
        const uint64_t before = moved_bytes();
        return moves(false, own.address) && (moved_bytes() == before);
    })) << "not over ports";
    const exporting_process exporter;
    void *imported = nullptr;
    ASSERT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_dmabuf_import)(
                          exporter.fd, exporting_process::offset, size, nullptr,
                          &imported));
    const uint64_t written = written_by_ports();
    EXPECT_TRUE(moves(true, imported));
    EXPECT_EQ(written, written_by_ports());
    EXPECT_TRUE(p.peer.has(true, size, 9));
    p.peer.fill(2);
    EXPECT_TRUE(moves(false, imported));
    EXPECT_TRUE(p.copy.holds(reinterpret_cast<uintptr_t>(imported), size, 2));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_dmabuf_release)(imported));
}

/* Host memory that a card can map is written and read by its ports. Nobody has
 * to have registered it. */
TEST_IN_CHILD(ports_way, moves_host_memory_without_a_copy, over_ports())
{
    GAUDI_NEEDS(ports_to_host);
    pair p;
    guarded_buffer host(ipc_peer_bytes);
    std::optional<registration> mapped(std::in_place, p.ipc_md, host.data(),
                                       host.size());
    for (unsigned round = 0; round < 3; ++round) { /* the first one connects */
        const uint64_t before = moved_bytes();
        counted_completion done[2];
        fill_pattern(host.data(), host.size(), round);
        p.target().start_put(host.data(), host.size(), p.remote(), &done[0]);
        p.flush();
        std::fill_n(host.data(), host.size(), 0);
        p.target().start_get(host.data(), host.size(), p.remote(), &done[1]);
        p.flush();
        EXPECT_TRUE(ended_once(done[0]) && ended_once(done[1]));
        EXPECT_TRUE(has_pattern(host.data(), host.size(), round));
        EXPECT_EQ(before, moved_bytes());
        mapped.reset();
    }
}

/* What a card cannot map. */
TEST_IN_CHILD(ports_way, stages_read_only_memory, from_host_over_ports())
{
    constexpr size_t size = 1 << 20;
    pair p;
    void *host = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, host);
    fill_pattern(static_cast<char *>(host), size, 1);
    ASSERT_EQ(0, mprotect(host, size, PROT_READ));
    for (unsigned i = 0; i < 2; ++i) {
        p.target().start_put(host, size, p.remote());
        p.flush();
        EXPECT_TRUE(p.peer.has(true, size, 1));
    }
    EXPECT_EQ(0, munmap(host, size));
}

/* Bytes for the host that ports write come into chunks of the card here. */
TEST_IN_CHILD(ports_way, gets_of_a_stopped_peer_leave_chunks_to_others,
              from_host_over_ports())
{
    GAUDI_NEEDS(ports_to_host);
    constexpr size_t size = 4096;
    pair p;
    ipc_peer good;
    const unpacked_key key(good.device.key);
    uct_ep_h ep = p.tl->make_ep(good.address);
    std::vector<char> host(size);
    std::array<counted_completion, 64> gets;
    const auto get = [&](uct_ep_h of, uint64_t remote, uct_rkey_t rkey,
                         counted_completion &done) {
        return uct_ep_get_bcopy(of, unpack_by_memcpy(), host.data(), size,
                                remote, rkey, &done);
    };
    const auto get_all = [&](uct_ep_h of, uint64_t remote, uct_rkey_t rkey) {
        counted_completion done;
        ucs_status_t status;
        EXPECT_TRUE(p.tl->progress_until([&] {
            status = get(of, remote, rkey, done);
            return status != UCS_ERR_NO_RESOURCE;
        }));
        return (status == UCS_OK) ||
               p.tl->progress_until([&] { return done.calls > 0; });
    };
    good.fill(1);
    EXPECT_TRUE(get_all(p.ep, p.remote(), p.key.rkey()));
    EXPECT_TRUE(get_all(ep, good.device.address, key.rkey()));
    p.peer.process().stop();
    unsigned under_way = 0;
    while ((under_way < gets.size()) &&
           (get(p.ep, p.remote(), p.key.rkey(), gets[under_way]) ==
            UCS_INPROGRESS)) {
        ++under_way;
    }
    EXPECT_LT(0u, under_way);
    EXPECT_GT(gets.size(), under_way) << "there are fewer chunks";
    EXPECT_TRUE(get_all(ep, good.device.address, key.rkey()));
    EXPECT_TRUE(has_pattern(host.data(), size, 1));
    EXPECT_EQ(0u, gets.front().calls);
    p.peer.process().kill(SIGCONT);
    p.flush();
    EXPECT_EQ(under_way, count_ended(gets));
    uct_ep_destroy(ep);
}

/* Which has closed gaudi_ipc, and is silent when it has opened it again: the
 * way that was known has gone. */
TEST_IN_CHILD(ports_way, is_made_anew_to_a_peer_that_is_met_again,
              over_ports("rests"))
{
    pair p;
    const device_buffer memory(p.copy_md, 8);
    ASSERT_EQ(UCS_OK, p.target().put_short(memory.address, 8, p.remote()));
    const auto [address, again] = p.peer.reopen();
    uct_ep_h ep                 = p.tl->make_ep(address);
    const unpacked_key fresh(again.key);
    const auto put = [&, rkey = fresh.rkey(), at = again.address] {
        return uct_ep_put_short(ep, memory.address, 8, at, rkey);
    };
    p.peer.process().stop();
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, put());
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, put());
    pending_request waits(put);
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &waits, 0));
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return waits.done;
    }));
    uct_ep_destroy(ep);
    (void)take_logs();
}

/* Which is held by what is under way. */
TEST_IN_CHILD(ports_way, is_taken_by_no_key_that_has_ended_meanwhile,
              over_ports())
{
    pair p;
    device_buffer memory(p.copy_md, 4096);
    counted_completion done[2];
    p.target().start_put(memory.address, 8, p.remote(), &done[0]);
    p.peer.end_key();
    p.target().start_put(memory.address, 8, p.remote(), &done[1]);
    p.flush();
    EXPECT_TRUE(ended_once(done[0]));
    EXPECT_EQ(1u, done[1].calls);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, done[1].status);
    (void)take_logs();
}

/* A get is under way, which the peer's ports were to write. */
TEST_IN_CHILD(ports_way, wakes_who_sleeps_when_a_peer_is_killed, over_ports())
{
    pair p;
    ipc_peer victim;
    const unpacked_key key(victim.device.key);
    const endpoint doomed{p.tl->make_ep(victim.address), key.rkey()};
    const device_buffer memory(p.copy_md, 8);
    const uint64_t there = victim.device.address;
    EXPECT_EQ(UCS_OK, doomed.put_short(memory.address, 8, there));
    victim.break_card("wqe=lose");
    counted_completion lost;
    doomed.start_get(memory.address, 8, there, &lost);
    std::thread killer([&, sleeper = gettid()] {
        EXPECT_TRUE(eventually([=] { return is_blocked(sleeper); }));
        victim.process().kill(SIGKILL);
    });
    EXPECT_TRUE(p.tl->sleep_until([&] { return lost.calls > 0; }));
    killer.join();
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, lost.status);
    uct_ep_destroy(doomed.ep);
    (void)victim.process().wait();
    (void)take_logs();
}

namespace {

std::atomic<unsigned> system_calls{0};

} // namespace

/* What is forbidden to a thread stays so, and is not done: the process is of no
 * more use then. */
GAUDI_CHILD(posts_without_a_system_call)
{
    pair p;
    const endpoint target = p.target();
    device_buffer memory(p.copy_md, 4096);
    GAUDI_CHILD_REQUIRE(signal(SIGSYS, [](int) { ++system_calls; }) != SIG_ERR);
    for (const bool is_counted : {false, true}) { /* the first one connects */
        counted_completion done[64];
        bool is_right = false;
        std::thread([&] {
            if (is_counted && (trap_system_calls() != 0)) {
                _exit(2);
            }
            for (counted_completion &each : done) {
                (void)target.put_zcopy(memory.address, 8, p.remote(), &each);
            }
            const unsigned made = system_calls;
            (void)getppid();
            is_right = (made == 0) && (system_calls == (is_counted ? 1u : 0u));
        }).join();
        if (!is_right) {
            _exit(1);
        }
        for (counted_completion &each : done) {
            EXPECT_TRUE(p.tl->progress_until([&] { return each.calls == 1; }));
        }
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
}

/* A thread that is stopped amid it may find a lock taken, and not the next
 * time. Without the timing model, which makes calls in this process. */
TEST(ports_way, posts_without_a_system_call)
{
    ::testing::AssertionResult passed = ::testing::AssertionFailure();
    for (unsigned tries = 0; !passed && (tries < 10); ++tries) {
        passed =
            child_passes("posts_without_a_system_call",
                         over_ports("rests", {{"HLTHUNK_EMU_TIMING", "off"}}));
    }
    EXPECT_TRUE(passed);
}

/* Others can write over ports, which whoever sets this may not want. */
TEST_IN_CHILD(host_way, is_taken_where_the_routes_are_wrong,
              {{{"UCX_GAUDI_IPC_ROUTES", "ports,pcie"},
                {"HLTHUNK_EMU_PORTS", "y"},
                {peer_habit, "rests"}}})
{
    with_a_peer p;
    const unpacked_key key(p.peer.device.key);
    EXPECT_THAT(take_logs(), ::testing::ElementsAre(::testing::HasSubstr(
                                 "UCX_GAUDI_IPC_ROUTES=ports,pcie 'pcie'")));
}

/* The kernel copies it, or the peer's own CPU: a copy ends with an error, or as
 * it should. */
TEST_P_IN_CHILD(host_memory_of_a_peer, may_be_unmapped_meanwhile, options())
{
    for (const bool are_puts : {false, true}) {
        SCOPED_TRACE(are_puts);
        pair p;
        const unpacked_key key(p.peer.host.key);
        const endpoint host   = p.to(key);
        const uint64_t remote = p.peer.host.address;
        device_buffer memory(p.copy_md, ipc_peer_bytes);
        p.peer.fill(1);
        ASSERT_EQ(UCS_OK,
                  host.get_short(memory.address, ipc_peer_bytes, remote));
        many all;
        for (counted_completion &each : all) {
            are_puts
                ? host.start_put(memory.address, ipc_peer_bytes, remote, &each)
                : host.start_get(memory.address, ipc_peer_bytes, remote, &each);
        }
        EXPECT_TRUE(
            p.tl->progress_until([&] { return all.front().calls > 0; }));
        p.peer.unmap_host();
        EXPECT_TRUE(each_ended_once(*p.tl, all));
        EXPECT_EQ(UCS_OK, all.front().status);
        EXPECT_THAT(all, ::testing::Each(::testing::Field(
                             &uct_completion_t::status,
                             ::testing::AnyOf(UCS_OK, UCS_ERR_INVALID_ADDR))));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, all.back().status);
        EXPECT_THAT(take_logs(), ::testing::Each(::testing::HasSubstr(
                                     std::strerror(EFAULT))));
        EXPECT_TRUE(p.copy.holds(memory.remote(), ipc_peer_bytes, 1));

        /* The connection goes on. */
        ASSERT_EQ(UCS_OK, p.target().put_short(memory.address, ipc_peer_bytes,
                                               p.remote()));
        EXPECT_TRUE(p.peer.has(true, ipc_peer_bytes, 1));
    }
}

INSTANTIATE_TEST_SUITE_P(of, host_memory_of_a_peer, ::testing::Bool(),
                         [](const auto &tested) {
                             return std::string(tested.param ? "another_pod"
                                                             : "this_node");
                         });

TEST_IN_CHILD(host_way, wakes_who_sleeps_until_a_copy_ends, over_host())
{
    pair p;
    std::vector<char> host(ipc_peer_bytes);
    for (unsigned i = 0; i < 300; ++i) {
        counted_completion done;
        p.target().start_get(host.data(), (i % 2 == 0) ? 8 : host.size(),
                             p.remote(), &done);
        ASSERT_TRUE(p.tl->sleep_until([&] { return done.calls > 0; })) << i;
        EXPECT_EQ(UCS_OK, done.status);
    }
}

/* Which has closed gaudi_ipc, and opens it again. */
TEST_IN_CHILD(host_way, meets_a_peer_again, over_host())
{
    pair p;
    std::vector<char> host(ipc_peer_bytes, 'x');
    for (unsigned round = 0; round < 5; ++round) {
        SCOPED_TRACE(round);
        const auto [address, again] = p.peer.reopen();
        uct_ep_h ep                 = p.tl->make_ep(address);
        const unpacked_key fresh(again.key);
        many puts;
        put_much({ep, fresh.rkey()}, host, again.address, puts);
        p.tl->progress_until([&] { return count_ended(puts) > 0; });
        (void)p.peer.reopen();
        EXPECT_TRUE(each_ended_once(*p.tl, puts));
        /* In time, or the peer knew neither the key or the process. */
        EXPECT_THAT(puts, ::testing::Each(::testing::Field(
                              &uct_completion_t::status,
                              ::testing::AnyOf(UCS_OK, UCS_ERR_CONNECTION_RESET,
                                               UCS_ERR_ENDPOINT_TIMEOUT))));
        uct_ep_destroy(ep);
    }
}

/* A reader that goes while the card here copies for it. */
TEST_IN_CHILD(host_way, forgets_a_client_that_goes, over_host("polls"))
{
    pair p;
    device_buffer memory(p.copy_md, ipc_peer_bytes);
    registration memh(p.ipc_md, memory.address, ipc_peer_bytes);
    const ipc_peer::memory shared{pack_key(p.ipc_md, memh.memh),
                                  memory.remote()};
    (void)p.to(p.key); /* what is made once is made */
    unsigned files       = 0;
    const unsigned links = count_mappings("ucx-gaudi-link");
    for (unsigned round = 0; round < 4; ++round) {
        auto client = std::make_unique<ipc_peer>();
        client->connect(p.tl->address());
        engine_hooks::pause(true);
        client->hold(shared);
        EXPECT_TRUE(eventually(
            [&] { return count_mappings("ucx-gaudi-link") > links; }));
        if (round % 2 == 0) {
            client->process().kill(SIGKILL);
        } else {
            client->execute();
        }
        engine_hooks::pause(false);
        client.reset();
        EXPECT_TRUE(eventually([&] {
            p.tl->progress();
            return (count_mappings("ucx-gaudi-link") == links) &&
                   ((round == 0) || (count_open_fds() <= files));
        }));
        files = count_open_fds();
    }
}

/* Forked children, of either side, have no part in it, and live on. */
TEST_IN_CHILD(host_way, goes_on_beside_forked_children, over_host("polls"))
{
    pair p;
    device_buffer memory(p.copy_md, ipc_peer_bytes);
    registration memh(p.ipc_md, memory.address, ipc_peer_bytes);
    p.peer.connect(p.tl->address());
    std::vector<char> host(ipc_peer_bytes, 'x');
    many puts;
    put_much(p.target(), host, p.remote(), puts);
    int pipe_fds[2];
    ASSERT_EQ(0, pipe(pipe_fds));
    forked_process child([&] {
        close(pipe_fds[1]);
        char end;
        p.tl->progress();
        return static_cast<int>(read(pipe_fds[0], &end, 1));
    });
    EXPECT_TRUE(each_ended_once(*p.tl, puts));
    EXPECT_EQ(UCS_OK, puts.back().status);
    p.peer.hold({pack_key(p.ipc_md, memh.memh), memory.remote()});
    p.peer.let_go();
    close(pipe_fds[1]);
    close(pipe_fds[0]);
    EXPECT_EQ(0, child.wait().exit_code);
}

namespace {

/* Short operations with memory of a peer that is stopped: who waited for it
 * would wait for ever. */
struct short_with_a_stopped_peer : pair {
    short_with_a_stopped_peer()
    {
        fill_pattern(bytes, sizeof(bytes), 1);
        EXPECT_EQ(UCS_OK, put()); /* it is connected */
        peer.process().stop();
    }

    ucs_status_t put()
    {
        return uct_ep_put_short(ep, bytes, sizeof(bytes), remote(), key.rkey());
    }
    ucs_status_t get()
    {
        return uct_ep_get_short(ep, got, sizeof(got), remote(), key.rkey());
    }

    char bytes[64];
    char got[64] = {};
};

} // namespace

TEST_IN_CHILD(host_way, short_puts_do_not_wait_for_a_stopped_peer, over_host())
{
    short_with_a_stopped_peer p;
    fill_pattern(p.bytes, sizeof(p.bytes), 2);
    EXPECT_EQ(UCS_OK, p.put());
    fill_pattern(p.bytes, sizeof(p.bytes), 3);
    unsigned puts = 0;
    while ((puts < 100) && (p.put() == UCS_OK)) {
        ++puts;
    }
    EXPECT_LT(0u, puts);
    EXPECT_GT(100u, puts) << "there are fewer chunks";
    pending_request last([&] { return p.put(); });
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(p.ep, &last, 0));
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return last.done;
    }));
    p.flush();
    EXPECT_TRUE(p.peer.has(true, sizeof(p.bytes), 3));
    EXPECT_EQ(UCS_OK, p.put());
}

TEST_IN_CHILD(host_way, short_gets_do_not_wait_for_a_stopped_peer, over_host())
{
    short_with_a_stopped_peer p;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, p.get());
    pending_request again([&] { return p.get(); });
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(p.ep, &again, 0));
    p.tl->progress_much();
    EXPECT_FALSE(again.done);
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return again.done;
    }));
    EXPECT_TRUE(has_pattern(p.got, sizeof(p.got), 1));
}

/* Between device memory: nothing of it is in a chunk. */
TEST_IN_CHILD(host_way, short_operations_of_a_card_do_not_wait_for_a_peer,
              over_host())
{
    short_with_a_stopped_peer p;
    const device_buffer memory(p.copy_md, 64);
    pending_request again([&] {
        return uct_ep_put_short(p.ep, memory.address, 64, p.remote(),
                                p.key.rkey());
    });
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, again.operation());
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(p.ep, &again, 0));
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return again.done;
    }));
}

TEST_IN_CHILD(host_way, short_operations_do_not_wait_behind_a_fence,
              over_host())
{
    short_with_a_stopped_peer p;
    counted_completion before;
    p.target().start_put(p.bytes, sizeof(p.bytes), p.remote(), &before);
    EXPECT_EQ(UCS_OK, uct_ep_fence(p.ep, 0));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, p.put());
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, p.get());
    EXPECT_EQ(0u, before.calls);
    p.peer.process().kill(SIGCONT);
    p.flush();
    EXPECT_TRUE(ended_once(before));
}

/* That nobody waits for any more. */
TEST_IN_CHILD(host_way, fails_the_endpoint_of_a_short_put_that_was_left,
              over_host())
{
    pair p;
    ipc_peer doomed;
    const unpacked_key key(doomed.device.key);
    uct_ep_h ep    = p.tl->make_ep(doomed.address);
    const auto put = [&] {
        return uct_ep_put_short(ep, "bytes", 5, doomed.device.address,
                                key.rkey());
    };
    EXPECT_EQ(UCS_OK, put());
    doomed.process().stop();
    EXPECT_EQ(UCS_OK, put());
    EXPECT_THAT(p.tl->failures, ::testing::IsEmpty());
    doomed.process().kill(SIGKILL);
    doomed.process().wait();
    EXPECT_TRUE(p.tl->progress_until([&] { return !p.tl->failures.empty(); }));
    uct_ep_destroy(ep);
    (void)take_logs();
}

/* It tells of bytes that have not come, and nobody has heard so yet. */
TEST_IN_CHILD(host_way, no_message_passes_a_put_that_failed, over_host())
{
    pair p;
    const unpacked_key key(p.peer.host.key);
    uct_ep_h other  = p.tl->make_ep(p.peer.address);
    const auto poll = [&] {
        return uct_ep_put_short(other, "bytes", 5, p.peer.host.address,
                                key.rkey());
    };
    EXPECT_EQ(UCS_OK, poll());
    p.peer.end_key();
    EXPECT_EQ(5, p.target().put_bcopy("bytes", 5, p.remote()));
    EXPECT_EQ(UCS_OK, uct_ep_fence(p.ep, 0));
    EXPECT_TRUE(eventually([&] { return poll() == UCS_OK; }));
    const auto send = [&] {
        return uct_ep_am_short(p.ep, ipc_echo_id, 0, "flag", 4);
    };
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, send()); /* the failure is told first */
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return send() == UCS_ERR_CONNECTION_RESET;
    }));
    uct_ep_destroy(other);
    (void)take_logs();
}

/* The bound is for busy machines: a call that waits for the peer lasts until
 * that is continued. */
TEST_IN_CHILD(host_way, no_call_waits_for_a_stopped_peer, over_host())
{
    using clock = std::chrono::steady_clock;
    short_with_a_stopped_peer p;
    clock::duration longest{0};
    const auto timed = [&](auto &&call) {
        const auto before = clock::now();
        const auto result = call();
        longest           = std::max(longest, clock::now() - before);
        return result;
    };
    std::vector<char> much(ipc_peer_bytes);
    many puts;
    for (counted_completion &each : puts) {
        EXPECT_EQ(UCS_INPROGRESS, timed([&] {
                      return p.target().try_put_zcopy(much.data(), much.size(),
                                                      p.remote(), &each);
                  }));
    }
    uct_ep_h ep = timed([&] { return p.tl->make_ep(p.peer.address); });
    ASSERT_NE(nullptr, ep);
    const auto key =
        timed([&] { return unpacked_key(p.peer.device.key).status(); });
    EXPECT_EQ(UCS_OK, key);
    const auto send = [&] {
        return uct_ep_am_short(ep, ipc_echo_id, 0, "flag", 4);
    };
    while (timed(send) == UCS_OK) {}
    pending_request last(send);
    EXPECT_EQ(UCS_OK, timed([&] { return uct_ep_pending_add(ep, &last, 0); }));
    counted_completion flushed;
    EXPECT_EQ(UCS_INPROGRESS,
              timed([&] { return uct_ep_flush(p.ep, 0, &flushed); }));
    for (unsigned i = 0; i < 1000; ++i) {
        (void)timed([&] { return p.tl->progress(); });
        (void)timed([&] { return p.tl->arm(); });
        (void)timed([&] { return p.put(); });
        (void)timed([&] { return p.get(); });
    }
    EXPECT_LT(longest, std::chrono::seconds(1));
    EXPECT_EQ(0u, count_ended(puts));
    EXPECT_THAT(purge_pending(ep), ::testing::ElementsAre(&last));
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(p.tl->progress_until([&] { return flushed.calls > 0; }));
    EXPECT_TRUE(each_ended_once(*p.tl, puts));
    uct_ep_destroy(ep);
}

/* Whoever has asked hears of each by its status. */
TEST_IN_CHILD(host_way, puts_to_a_key_that_has_ended_log_nothing, over_host())
{
    pair p;
    uint64_t word = 1;
    EXPECT_EQ(UCS_OK, p.target().put_short(&word, sizeof(word), p.remote()));
    p.peer.end_key();
    std::vector<counted_completion> puts(2048);
    for (counted_completion &each : puts) {
        p.target().start_put(&word, sizeof(word), p.remote(), &each);
    }
    for (const counted_completion &each : puts) {
        EXPECT_TRUE(p.tl->progress_until([&] { return each.calls == 1; }));
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each.status);
    }
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

/* Of two copies the later one has ended, and the earlier one does not. */
TEST_IN_CHILD(host_way, ends_while_a_peer_is_stuck, over_host())
{
    pair p;
    auto stuck = std::make_unique<ipc_peer>();
    {
        const unpacked_key key(stuck->device.key);
        transport own(p.ipc_md);
        uct_ep_h ep = own.make_ep(stuck->address);
        const endpoint target{ep, key.rkey()};
        uint64_t bytes[2] = {};
        counted_completion connected;
        target.start_put(bytes, 8, stuck->device.address, &connected);
        EXPECT_TRUE(own.progress_until([&] { return connected.calls > 0; }));
        stuck->break_card("job#1=delay:1000s");
        const uint64_t before = stuck->moved_bytes();
        target.start_put(&bytes[0], 8, stuck->device.address);
        EXPECT_TRUE(
            eventually([&] { return stuck->moved_bytes() == before + 8; }));
        target.start_get(&bytes[1], 8, stuck->device.address);
        EXPECT_TRUE(
            eventually([&] { return stuck->moved_bytes() == before + 16; }));
        stuck->process().stop();
        uct_ep_destroy(ep);
    }
    stuck.reset();
    (void)take_logs();
}

/* It waits for chunks: asked for anew in each progress, it is told at once. */
TEST_IN_CHILD(host_way, a_short_put_that_waits_does_not_hold_up_progress,
              over_host())
{
    short_with_a_stopped_peer p;
    std::vector<char> much(ipc_peer_bytes);
    counted_completion before;
    p.target().start_put(much.data(), much.size(), p.remote(), &before);
    p.tl->progress_much();
    pending_request waits([&] { return p.put(); });
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(p.ep, &waits, 0));
    for (unsigned i = 0; i < 5000; ++i) { /* 250 s, were each to wait 50 ms */
        p.tl->progress();
    }
    EXPECT_FALSE(waits.done);
    p.peer.process().kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return waits.done;
    }));
    p.flush();
    EXPECT_TRUE(ended_once(before));
}

/* Each answer comes later than a call waits at first. */
TEST_IN_CHILD(host_way, a_short_get_of_a_slow_peer_ends, over_host("polls"))
{
    pair p;
    p.peer.fill(1);
    char got[64];
    const endpoint target{p.ep, p.key.rkey()};
    ASSERT_EQ(UCS_OK, target.get_short(got, sizeof(got), p.remote()));
    std::fill_n(got, sizeof(got), 0);
    p.peer.break_card("job=delay:80ms");
    EXPECT_EQ(UCS_OK, target.get_short(got, sizeof(got), p.remote()));
    EXPECT_TRUE(has_pattern(got, sizeof(got), 1));
    p.peer.break_card("");
    p.flush();
}

/* It is longer than all chunks together, and each comes back later than a call
 * waits at first. */
TEST_IN_CHILD(host_way, a_long_short_put_to_a_slow_peer_ends,
              over_host("polls"))
{
    pair p;
    std::vector<char> much(ipc_peer_bytes);
    fill_pattern(much.data(), much.size(), 1);
    p.peer.break_card("job=delay:80ms");
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return uct_ep_put_short(p.ep, much.data(), much.size(), p.remote(),
                                p.key.rkey()) == UCS_OK;
    }));
    p.peer.break_card("");
    p.flush();
    EXPECT_TRUE(p.peer.has(true, much.size(), 1));
}

/* Of device memory that a card here copies to chunks of the peer's: others use
 * the same card meanwhile, and a thread may sleep. */
TEST_IN_CHILD(host_way, a_put_to_a_stopped_peer_is_in_nobody_elses_way,
              over_host())
{
    pair p;
    ipc_peer stuck;
    const unpacked_key key(stuck.device.key);
    const endpoint bad{p.tl->make_ep(stuck.address), key.rkey()};
    const device_buffer memory(p.copy_md, ipc_peer_bytes);
    const auto put = [&](const endpoint &to, uint64_t remote) {
        counted_completion done;
        to.start_put(memory.address, ipc_peer_bytes, remote, &done);
        return p.tl->progress_until([&] { return done.calls > 0; });
    };
    EXPECT_TRUE(put(p.target(), p.remote()));
    EXPECT_TRUE(put(bad, stuck.device.address));
    stuck.process().stop();
    counted_completion late;
    bad.start_put(memory.address, ipc_peer_bytes, stuck.device.address, &late);
    p.tl->progress_much();
    EXPECT_TRUE(put(p.target(), p.remote()));
    EXPECT_EQ(0u, late.calls);
    EXPECT_TRUE(eventually([&] {
        p.tl->progress();
        return p.tl->arm(UCT_EVENT_SEND_COMP) == UCS_OK;
    }));
    stuck.process().kill(SIGCONT);
    EXPECT_TRUE(p.tl->progress_until([&] { return late.calls > 0; }));
    EXPECT_TRUE(ended_once(late));
    uct_ep_destroy(bad.ep);
}

/* What a card has read goes on to its peer: one that is stopped, and whose
 * ports are full, holds up no other. */
TEST_IN_CHILD(host_way, bytes_for_one_peer_do_not_wait_behind_those_of_another,
              over_ports("rests", {}, "ports,host"))
{
    pair p;
    ipc_peer stuck;
    const unpacked_key device(stuck.device.key);
    const unpacked_key host(stuck.host.key);
    const unpacked_key good_host(p.peer.host.key);
    uct_ep_h ep = p.tl->make_ep(stuck.address);
    const endpoint to_device{ep, device.rkey()};
    const endpoint to_host{ep, host.rkey()};
    const endpoint good   = p.to(good_host);
    constexpr size_t size = 64 << 10;
    const device_buffer memory(p.copy_md, ipc_peer_bytes);
    const device_buffer other(p.copy_md, size);
    const auto put = [&](const endpoint &to, void *from, size_t length,
                         uint64_t remote) {
        counted_completion done;
        to.start_put(from, length, remote, &done);
        return p.tl->progress_until([&] { return done.calls > 0; }) &&
               (done.status == UCS_OK);
    };
    EXPECT_TRUE(eventually([&] {
        const uint64_t before = written_by_ports();
        return put(to_device, memory.address, ipc_peer_bytes,
                   stuck.device.address) &&
               (written_by_ports() > before);
    }));
    EXPECT_TRUE(put(good, other.address, size, p.peer.host.address));
    EXPECT_TRUE(put(to_host, other.address, size, stuck.host.address));
    stuck.process().stop();
    std::array<counted_completion, 17> gets;
    for (counted_completion &each : gets) {
        to_device.start_get(memory.address, ipc_peer_bytes,
                            stuck.device.address, &each);
    }
    p.tl->progress_much();
    counted_completion late;
    to_host.start_put(other.address, size, stuck.host.address, &late);
    p.tl->progress_much();
    EXPECT_TRUE(put(good, other.address, size, p.peer.host.address));
    EXPECT_EQ(0u, late.calls);
    stuck.process().kill(SIGCONT);
    EXPECT_TRUE(p.tl->progress_until(
        [&] { return (late.calls > 0) && (gets.back().calls > 0); }));
    p.flush();
    uct_ep_destroy(ep);
}

} // namespace gaudi::test
