/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of ports that fail, once transfers go on: which of them are used
 * again. What befalls a transfer that is under way, test_faults.cc has.
 * In children: routes are read once per process. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "common/vfs.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <unistd.h>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::test {

namespace {

child_options over(const char *routes, const char *drain_ms = "20",
                   const char *retries = "30")
{
    return {{{"UCX_GAUDI_IPC_ROUTES", routes},
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

    /* Bytes that the card here has written by a port. */
    static uint64_t written_by(const std::string &port)
    {
        const auto number = std::stoul(port.substr(port.find('.') + 1));
        return engine_hooks::counters().port_bytes[number];
    }
    /* So many to the peer; by each port one more where an answer comes late,
     * which is asked for anew. */
    ::testing::AssertionResult has_written(uint64_t wanted)
    {
        const std::vector<std::string> ports = wires_to(peer.card());
        uint64_t all                         = 0;
        for (const std::string &each : ports) {
            all += written_by(each);
        }
        return ((all >= wanted) && (all <= wanted + ports.size()))
                   ? ::testing::AssertionSuccess()
                   : ::testing::AssertionFailure() << all << " bytes";
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
        const uint64_t here  = written_by(port(which));
        const uint64_t there = written_there(which);
        return (put() == UCS_OK) && (get() == UCS_OK) &&
               (written_by(port(which)) > here) &&
               (written_there(which) > there);
    }

    device_buffer memory{copy_md, size};
};

} // namespace

TEST_IN_CHILD(port_faults, puts_are_counted_by_interface, over("ports"))
{
    ports_to_a_peer s;
    ASSERT_EQ(UCS_OK, s.put(3 * 4096));
    ASSERT_EQ(UCS_OK, s.put());
    EXPECT_TRUE(s.has_written(3 * 4096 + size));
    const std::string folder = "/uct/worker/" + vfs_name(s.tl->worker) +
                               "/iface/" + vfs_name(s.tl->iface);
    EXPECT_TRUE(look_into(folder));
    EXPECT_EQ(3 * 4096 + size, vfs_number(folder + "/copies/ports_bytes"));
    EXPECT_EQ(2u, vfs_number(folder + "/copies/ports_operations"));
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
    EXPECT_TRUE(s.has_written(takes_ports ? 0 : 3 * size));
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
              over("ports", "20", "254"))
{
    ports_to_a_peer s;
    ASSERT_TRUE(s.is_used(1));
    s.wish("port=down@" + s.port(1));
    counted_completion under_way;
    ASSERT_EQ(UCS_INPROGRESS, s.target().put_zcopy(s.memory.address, size,
                                                   s.remote(), &under_way));
    EXPECT_TRUE(s.tl->progress_until([&] {
        const uint64_t before = s.written_by(s.port(0));
        return (s.put(8 << 10) == UCS_OK) && (under_way.calls == 0) &&
               (s.written_by(s.port(0)) > before);
    }));
    s.wish("port=up");
    EXPECT_EQ(UCS_OK, s.end(UCS_INPROGRESS, under_way));
    EXPECT_TRUE(eventually([&] { return s.is_used(1); }));
}

namespace {

unsigned queues()
{
    return count_mappings("hlthunk-emu-port");
}

/* With a connection of which a queue pair fails, here or there. */
struct failing_ports : ports_to_a_peer {
    failing_ports()
    {
        EXPECT_TRUE(eventually([&] { return is_used(1); }));
    }

    void fail_here()
    {
        wish("wqe#1=abort@0");
        EXPECT_EQ(UCS_ERR_IO_ERROR, put());
        wish("");
        (void)take_logs();
    }
    void fail_there()
    {
        peer.break_card("wqe#1=abort");
        EXPECT_EQ(UCS_ERR_IO_ERROR, get());
        peer.break_card("");
        (void)take_logs();
    }

    /* Whether bytes get there and back, and each card's engine moves its own:
     * through host memory. */
    [[nodiscard]] bool goes_over_host()
    {
        const uint64_t seed = ++last_seed;
        std::vector<char> bytes(size);
        fill_pattern(bytes.data(), size, seed);
        EXPECT_EQ(UCS_OK, copy.put_short(bytes.data(), size, memory.remote()));
        const uint64_t moved[] = {moved_bytes(), peer.moved_bytes()};
        EXPECT_EQ(UCS_OK, put());
        const bool is_over_host = (moved_bytes() == moved[0] + size) &&
                                  (peer.moved_bytes() == moved[1] + size);
        EXPECT_TRUE(peer.has(true, size, seed));
        peer.fill(seed + 1);
        EXPECT_EQ(UCS_OK, get());
        EXPECT_TRUE(copy.holds(memory.remote(), size, seed + 1));
        return is_over_host;
    }

    uint64_t last_seed = 10;
};

} // namespace

/* Host memory is taken for five seconds by UCX's clock, which it adjusts for
 * itself in each process; then there is a new connection. */
TEST_IN_CHILD(port_faults, a_failed_connection_is_made_anew_later,
              over("ports,host"))
{
    failing_ports s;
    const unsigned before  = queues();
    const ucs_time_t since = ucs_get_time();
    s.fail_here();
    EXPECT_TRUE(s.goes_over_host());
    EXPECT_TRUE(eventually([&] { return queues() < before; }));
    EXPECT_TRUE(eventually([&] { return !s.goes_over_host(); }));
    EXPECT_LE(ucs_time_from_sec(5), ucs_get_time() - since);
    EXPECT_TRUE(eventually([&] { return s.is_used(1); }));
    EXPECT_TRUE(s.is_used(0) && s.is_used(2));
    EXPECT_EQ(before, queues());
}

TEST_IN_CHILD(port_faults, a_connection_that_fails_at_the_peer_is_closed_too,
              over("ports,host"))
{
    failing_ports s;
    s.fail_there();
    EXPECT_TRUE(eventually([&] { return s.goes_over_host(); }));
}

/* A failure of others' has it forgotten. */
TEST_IN_CHILD(port_faults, one_that_has_failed_at_the_peer_is_not_used_again,
              over("ports,host"))
{
    failing_ports s;
    ipc_peer other;
    const unpacked_key key(other.device.key);
    const endpoint to{s.tl->make_ep(other.address), key.rkey()};
    const auto put = [&] {
        counted_completion done;
        return s.end(
            to.put_zcopy(s.memory.address, size, other.device.address, &done),
            done);
    };
    EXPECT_TRUE(eventually([&] {
        const uint64_t before = written_by_ports();
        return (put() == UCS_OK) && (written_by_ports() > before);
    }));
    s.fail_there();
    s.wish("wqe#1=abort@0");
    EXPECT_EQ(UCS_ERR_IO_ERROR, put());
    s.wish("");
    EXPECT_EQ(UCS_OK, put());
    EXPECT_TRUE(eventually([&] { return s.goes_over_host(); }));
    uct_ep_destroy(to.ep);
    (void)take_logs();
}

/* The ports have so many queue pairs, and each connection takes some. */
TEST_IN_CHILD(port_faults, connections_that_cannot_be_had_come_later,
              over("ports"))
{
    ports_to_a_peer s;
    std::deque<transport> others;
    std::vector<uct_ep_h> endpoints;
    ucs_status_t status = UCS_OK;
    while ((status == UCS_OK) && (others.size() < 100)) {
        endpoints.push_back(
            others.emplace_back(s.ipc_md).make_ep(s.peer.address));
        status = endpoint{endpoints.back(), s.key.rkey()}.put_short(
            s.memory.address, 1, s.remote());
    }
    EXPECT_LT(1u, others.size());
    EXPECT_NE(UCS_OK, status);
    EXPECT_NE(UCS_OK, s.put(8));
    std::ranges::for_each(endpoints, uct_ep_destroy);
    others.clear();
    EXPECT_TRUE(eventually([&] { return s.put(8) == UCS_OK; }));
    (void)take_logs();
}

/* The driver drains what is destroyed in a work of its own (qp_destroy_work of
 * hbl_cn.c). Only who closes the card waits for that, so nobody does here. */
TEST_IN_CHILD(port_faults, a_connection_that_drains_holds_up_nobody,
              over("ports,host", "60000"))
{
    failing_ports s;
    s.fail_here();
    EXPECT_TRUE(s.goes_over_host());
    s.reopen();
    (void)take_logs();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
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

/* What the peer copies for others that use its link ends before. */
TEST_IN_CHILD(port_faults, a_get_that_waits_holds_up_nothing_else,
              over("ports,host"))
{
    ports_to_a_peer s;
    EXPECT_TRUE(eventually([&] { return s.is_used(0); }));
    const unpacked_key key(s.peer.host.key);
    const endpoint host{s.target().ep, key.rkey()};
    s.peer.break_card("wqe=lose");
    counted_completion waits;
    EXPECT_EQ(UCS_INPROGRESS,
              s.target().get_zcopy(s.memory.address, 8, s.remote(), &waits));
    const uint64_t word = 1;
    for (unsigned i = 0; i < 32; ++i) {
        EXPECT_EQ(UCS_OK,
                  host.put_short(&word, sizeof(word), s.peer.host.address));
    }
    EXPECT_EQ(0u, waits.calls);
    s.peer.break_card("");
    EXPECT_EQ(UCS_OK, s.get()); /* by all ports: tells of the other's end */
    EXPECT_TRUE(s.tl->progress_until([&] { return waits.calls > 0; }));
    EXPECT_EQ(UCS_OK, waits.status);
    (void)take_logs();
}

} // namespace gaudi::test
