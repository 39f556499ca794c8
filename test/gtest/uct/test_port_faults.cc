/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of ports that fail, once transfers go on: which of them are used
 * again. What befalls a transfer that is under way, test_interruptions.cc has.
 * In children: routes are read once per process. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"
#include "common/vfs.h"

#include <string>
#include <vector>

namespace gaudi::test {

namespace {

child_options over(const char *routes)
{
    return {{{"UCX_GAUDI_IPC_ROUTES", routes},
             {"HLTHUNK_EMU_PORTS", "y"},
             {"HLTHUNK_EMU_PORT_RETRIES", "30"},
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
    uint64_t bytes = 0;
    for (const std::string &each : wires_to(s.peer.card())) {
        bytes += s.shown(each, "bytes");
        EXPECT_GT(s.shown(each, "messages"), 0u);
        EXPECT_EQ(s.shown(each, "errors"), 0u);
    }
    EXPECT_EQ(bytes, 3 * 4096 + size);
}

TEST_IN_CHILD(port_faults, a_port_whose_link_is_back_is_used_again,
              over("ports"))
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
