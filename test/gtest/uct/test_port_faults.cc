/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of ports that fail, once transfers go on: which of them are used
 * again. What befalls a transfer that is under way, test_interruptions.cc has.
 * In children: routes are read once per process. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "common/vfs.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

child_options over(const char *routes, const char *drain_ms = "20",
                   const char *chunks = "16", const char *retries = "30")
{
    return {{{"UCX_GAUDI_IPC_ROUTES", routes},
             {"UCX_GAUDI_IPC_STAGING_COUNT", chunks},
             {"HLTHUNK_EMU_PORTS", "y"},
             {"HLTHUNK_EMU_PORT_RETRIES", retries},
             {"HLTHUNK_EMU_PORT_DRAIN", drain_ms},
             {peer_habit, "sleeps"}}};
}

constexpr size_t size = 1 << 20;

/* Puts and gets between device memory here and a peer's, with all its ports. */
struct ports_to_a_peer : with_a_peer {
    ports_to_a_peer() { peer.fill(1); }

    [[nodiscard]] std::string port(size_t which)
    {
        return wires_to(peer.card()).at(which);
    }
    void wish(const std::string &what)
    {
        EXPECT_EQ(0, emulator::instance().hlthunk_emu_fault(what.c_str()));
    }

    ucs_status_t end(ucs_status_t status, counted_completion &done) const
    {
        if (status == UCS_INPROGRESS) {
            EXPECT_TRUE(tl->progress_until([&] { return done.calls > 0; }));
            EXPECT_EQ(1u, done.calls);
            status = done.status;
        }
        return status;
    }
    ucs_status_t put(size_t bytes = size) const
    {
        counted_completion done;
        return end(target().put_zcopy(memory.address, bytes, remote(), &done),
                   done);
    }
    ucs_status_t get(size_t bytes = size) const
    {
        counted_completion done;
        return end(target().get_zcopy(memory.address, bytes, remote(), &done),
                   done);
    }

    /* What UCX shows of a port of the card here. */
    uint64_t shown(const std::string &of_port, const std::string &what) const
    {
        const std::string folder = "/uct/worker/" + vfs_name(tl->worker) +
                                   "/iface/" + vfs_name(tl->iface);
        EXPECT_TRUE(look_into(folder));
        const size_t dot = of_port.find('.');
        return vfs_number(folder + "/gaudi" + of_port.substr(0, dot) + "/port" +
                          of_port.substr(dot + 1) + "/" + what)
            .value_or(0);
    }
    uint64_t bytes()
    {
        uint64_t all = 0;
        for (const std::string &each : wires_to(peer.card())) {
            all += shown(each, "bytes");
        }
        return all;
    }
    /* What the peer's card has written by the other end of a port. */
    uint64_t written_there(size_t which)
    {
        const shim::card_ports own = engine_hooks::place();
        return peer.written_by(
            own.map.between(own.module_id, peer.card()).at(which).peer);
    }

    [[nodiscard]] bool is_used(size_t which)
    {
        const uint64_t here  = shown(port(which), "bytes");
        const uint64_t there = written_there(which);
        return (put() == UCS_OK) && (get() == UCS_OK) &&
               (shown(port(which), "bytes") > here) &&
               (written_there(which) > there);
    }

    device_buffer memory{copy_md, size};
};

} // namespace

TEST_IN_CHILD(port_faults, each_port_has_a_row, over("ports"))
{
    ports_to_a_peer s;
    ASSERT_EQ(UCS_OK, s.put(3 * 4096));
    ASSERT_EQ(UCS_OK, s.put());
    for (const std::string &each : wires_to(s.peer.card())) {
        EXPECT_GT(s.shown(each, "messages"), 0u);
        EXPECT_EQ(s.shown(each, "errors"), 0u);
    }
    EXPECT_EQ(s.bytes(), 3 * 4096 + size);
}

/* Of a card that it has acquired. */
GAUDI_CHILD(puts_beside_a_framework)
{
    const logs_down_to lines(UCS_LOG_LEVEL_INFO);
    ports_to_a_peer s;
    const bool takes_ports =
        (std::getenv("INIT_HCCL_ON_ACQUIRE") != std::string("false")) ||
        (std::getenv("ENABLE_EXPERIMENTAL_FLAGS") != std::string("true"));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(UCS_OK, s.put());
    }
    EXPECT_EQ(takes_ports ? 0 : 3 * size, s.bytes());
    {
        const ipc_peer other; /* with another card */
        const unpacked_key key(other.device.key);
        const endpoint to{s.tl->make_ep(other.address), key.rkey()};
        counted_completion done;
        EXPECT_EQ(UCS_OK, s.end(to.put_zcopy(s.memory.address, 8,
                                             other.device.address, &done),
                                done));
        uct_ep_destroy(to.ep);
    }
    const auto told = take_logs();
    EXPECT_EQ(takes_ports ? 1 : 0,
              std::ranges::count_if(told, [](const std::string &line) {
                  return line.find("HCL takes the ports when") != line.npos;
              }));
    return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(framework_ports, are_hcls_unless_it_is_told_to_leave_them)
{
    using std::tuple;
    for (const auto &[hcl, experimental, routes] :
         {tuple("true", "true", "ports,host"),
          tuple("false", "false", "ports,host"),
          tuple("false", "true", "ports")}) {
        child_options beside = over(routes);
        beside.environment.emplace_back("GAUDI_TEST_FRAMEWORK", "y");
        beside.environment.emplace_back("INIT_HCCL_ON_ACQUIRE", hcl);
        beside.environment.emplace_back("ENABLE_EXPERIMENTAL_FLAGS",
                                        experimental);
        EXPECT_TRUE(child_passes("puts_beside_a_framework", beside))
            << hcl << ' ' << experimental;
    }
}

TEST_IN_CHILD(port_faults, a_port_whose_link_is_back_is_used_again,
              over("ports", "20", "16", "254"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    s.wish("port=down@" + s.port(1));
    counted_completion under_way;
    ASSERT_EQ(UCS_INPROGRESS, s.target().put_zcopy(s.memory.address, size,
                                                   s.remote(), &under_way));
    EXPECT_TRUE(s.tl->progress_until([&] {
        const uint64_t before = s.shown(s.port(0), "bytes");
        return (s.put(8 << 10) == UCS_OK) && (under_way.calls == 0) &&
               (s.shown(s.port(0), "bytes") > before);
    }));
    s.wish("port=up");
    EXPECT_EQ(UCS_OK, s.end(UCS_INPROGRESS, under_way));
    EXPECT_TRUE(eventually([&] { return s.is_used(1); }));
}

TEST_IN_CHILD(port_faults, a_port_that_has_failed_is_replaced, over("ports"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    s.wish("wqe#2=abort@0");
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.put());
    s.wish("");
    EXPECT_TRUE(s.is_used(0) && s.is_used(1) && s.is_used(2));
    unsigned errors = 0;
    for (const std::string &each : wires_to(s.peer.card())) {
        errors += s.shown(each, "errors");
    }
    EXPECT_EQ(1u, errors);
    (void)take_logs();
}

/* Each has a queue pair on each port. They go when the next are replaced, which
 * is tried after 5 s. */
TEST_IN_CHILD(port_faults, ports_that_were_replaced_under_use_go, over("ports"))
{
    ports_to_a_peer s;
    const auto queues = [] { return count_mappings("hlthunk-emu-port"); };
    s.wish("port=down@" + s.port(1));
    EXPECT_EQ(UCS_OK, s.put(8));
    s.wish("port=up");
    const unsigned number = std::stoul(s.port(1).substr(2));
    std::deque<counted_completion> under_way;
    EXPECT_TRUE(eventually([&] {
        s.target().start_put(s.memory.address, 8, s.remote(),
                             &under_way.emplace_back());
        (void)s.peer.card(); /* which gives it time to answer */
        return engine_hooks::counters().ports[number].bytes > 0;
    }));
    s.flush();
    const unsigned both = queues();
    s.wish("wqe#2=abort@0");
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.put());
    s.wish("");
    EXPECT_TRUE(
        eventually([&] { return (s.put() == UCS_OK) && (queues() < both); }));
    (void)take_logs();
}

/* What fails to be had, which is tried after 5 s, is not tried again at each
 * operation. */
TEST_IN_CHILD(port_faults, more_ports_that_cannot_be_had_are_left_for_a_while,
              over("ports"))
{
    constexpr int puts = 100;
    ports_to_a_peer s;
    s.wish("port=down@" + s.port(1));
    ASSERT_EQ(UCS_OK, s.put(8));
    s.wish("port=up");
    /* The others have the 15 queue pairs of each port, then. */
    std::deque<transport> others;
    std::vector<uct_ep_h> endpoints;
    for (unsigned i = 0; i < 15; ++i) {
        endpoints.push_back(
            others.emplace_back(s.ipc_md).make_ep(s.peer.address));
        ASSERT_EQ(UCS_OK, (endpoint{endpoints.back(), s.key.rkey()}.put_short(
                              "x", 1, s.remote())));
    }
    const logs_down_to lines(UCS_LOG_LEVEL_DEBUG);
    const auto count_tries = [&] {
        return std::ranges::count_if(take_logs(), [](const std::string &line) {
            return line.find("no connection over ports") != line.npos;
        });
    };
    EXPECT_TRUE(eventually(
        [&] { return (s.put(8) == UCS_OK) && (count_tries() > 0); }));
    for (int i = 0; i < puts; ++i) {
        EXPECT_EQ(UCS_OK, s.put(8));
    }
    EXPECT_LT(count_tries(), puts / 2);
    std::ranges::for_each(endpoints, uct_ep_destroy);
}

/* The driver drains what is destroyed in a work of its own (qp_destroy_work of
 * hbl_cn.c). Only who closes the card waits for that, so nobody does here. */
TEST_IN_CHILD(port_faults, a_connection_that_drains_holds_up_nobody,
              over("ports", "60000"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    s.wish("wqe#2=abort@0");
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.put());
    s.wish("");
    EXPECT_TRUE(s.is_used(1));
    s.reopen();
    (void)take_logs();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
}

/* A get is under way when the first ones are replaced. */
TEST_IN_CHILD(port_faults, connections_that_are_replaced_under_use_go,
              over("ports", "0"))
{
    ports_to_a_peer s;
    const auto fail = [&] {
        s.wish("wqe#1=abort@0");
        EXPECT_EQ(UCS_ERR_IO_ERROR, s.put(8));
        s.wish("");
        (void)take_logs();
    };
    const auto queues = [] { return count_mappings("hlthunk-emu-port"); };
    counted_completion got;
    counted_completion put;
    ASSERT_EQ(UCS_OK, s.put(8));
    const unsigned before = queues();
    s.peer.process().stop();
    ASSERT_EQ(UCS_INPROGRESS,
              s.target().get_zcopy(s.memory.address, 8, s.remote(), &got));
    fail();
    s.peer.process().kill(SIGCONT);
    ASSERT_EQ(UCS_INPROGRESS,
              s.target().put_zcopy(s.memory.address, 8, s.remote(), &put));
    EXPECT_LT(before, queues());
    EXPECT_EQ(UCS_OK, s.end(UCS_INPROGRESS, put));
    EXPECT_EQ(UCS_OK, s.end(UCS_INPROGRESS, got));
    fail();
    EXPECT_TRUE(eventually([&] {
        const bool works = (s.put(8) == UCS_OK);
        (void)take_logs();
        return works;
    }));
    EXPECT_TRUE(eventually([&] { return queues() == before; })) << queues();
}

/* While there is no room to ask the peer for others. */
TEST_IN_CHILD(port_faults, queue_pairs_are_made_once_for_a_peer_that_is_busy,
              over("ports", "20", "8"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    counted_completion got[20];
    counted_completion put;
    const auto try_it = [&] {
        return s.target().put_zcopy(s.memory.address, 8, s.remote(), &put);
    };
    s.peer.process().stop();
    for (counted_completion &each : got) {
        ASSERT_EQ(UCS_INPROGRESS,
                  s.target().get_zcopy(s.memory.address, 8, s.remote(), &each));
    }
    s.wish("wqe#1=abort@0");
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.put(8));
    s.wish("");
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, try_it());
    rlimit before;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    const rlimit none{0, before.rlim_max}; /* no queue pair without a file */
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, try_it());
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    s.peer.process().kill(SIGCONT);
    for (counted_completion &each : got) {
        (void)s.end(UCS_INPROGRESS, each); /* one port is gone */
    }
    EXPECT_TRUE(s.is_used(1));
    (void)take_logs();
}

TEST_IN_CHILD(port_faults, a_port_that_has_failed_there_is_replaced,
              over("ports"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    s.peer.break_card("wqe#2=abort");
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.get());
    s.peer.break_card("");
    EXPECT_TRUE(s.is_used(0) && s.is_used(1) && s.is_used(2));
    (void)take_logs();
}

/* The first ports to either peer are over when others to one replace them. */
TEST_IN_CHILD(port_faults, ports_to_two_peers_are_replaced_one_by_one,
              over("ports"))
{
    ports_to_a_peer s;
    ipc_peer other;
    other.fill(1);
    other.connect(s.tl->address());
    const unpacked_key key(other.device.key);
    const endpoint to{s.tl->make_ep(other.address), key.rkey()};
    const auto get_from_other = [&] {
        counted_completion done;
        return s.end(
            to.get_zcopy(s.memory.address, size, other.device.address, &done),
            done);
    };
    ASSERT_EQ(UCS_OK, s.get());
    ASSERT_EQ(UCS_OK, get_from_other());
    for (ipc_peer *each : {&s.peer, &other}) {
        each->break_card("wqe#1=abort");
    }
    EXPECT_EQ(UCS_ERR_IO_ERROR, s.get());
    EXPECT_EQ(UCS_ERR_IO_ERROR, get_from_other());
    for (ipc_peer *each : {&s.peer, &other}) {
        each->break_card("");
    }
    EXPECT_EQ(UCS_OK, get_from_other());
    EXPECT_EQ(UCS_OK, s.get());
    uct_ep_destroy(to.ep);
    (void)take_logs();
}

TEST_IN_CHILD(port_faults, ports_that_were_all_down_are_used_again,
              over("ports,host"))
{
    ports_to_a_peer s;
    EXPECT_TRUE(eventually([&] { return s.is_used(1); }));
    for (const std::string &each : wires_to(s.peer.card())) {
        s.wish("port=down@" + each);
    }
    EXPECT_TRUE(eventually([&] { /* over host memory, then */
                                 return (s.put() == UCS_OK) &&
                                        (s.get() == UCS_OK);
    }));
    s.wish("port=up");
    EXPECT_TRUE(eventually([&] { return s.is_used(1); }));
    (void)take_logs();
}

/* The next completion of the queue pair tells of it. */
TEST_IN_CHILD(port_faults, a_completion_that_is_lost_is_made_up_for,
              over("ports"))
{
    ports_to_a_peer s;
    for (const size_t bytes : {size_t{8}, size}) {
        s.wish("wqe#2=lose@0");
        counted_completion done[8];
        for (counted_completion &each : done) {
            s.target().start_put(s.memory.address, bytes, s.remote(), &each);
        }
        s.flush();
        for (const counted_completion &each : done) {
            EXPECT_TRUE(ended_once(each));
        }
        s.wish("");
    }
    EXPECT_TRUE(s.is_used(0) && s.is_used(1) && s.is_used(2));
}

} // namespace gaudi::test
