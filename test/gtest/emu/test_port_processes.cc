/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports between processes, and with faults. */
#include "common/scratch.h"
#include "gtest/emu/ports_fixture.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr uint64_t target_offset = mebi;

/* Has card 3, tells what its peer has to know, and checks what comes. */
GAUDI_CHILD(receives_on_card_3)
{
    port_card card(3);
    port_user user(card, 1);
    const uint64_t memory = card.allocate_mapped(8 * mebi);
    std::ostringstream line;
    line << user.qpn() << ' ' << memory + target_offset;
    tell_parent(line.str());
    user.connect(1);
    for (;;) {
        const auto got = user.next(false);
        GAUDI_CHILD_REQUIRE(got.has_value());
        if (got->tag == 0) {
            return 0;
        }
        GAUDI_CHILD_REQUIRE(
            marked(card, memory + target_offset, got->size, got->tag));
        tell_parent("good");
    }
}

struct remote : child_process {
    explicit remote(const environment &more = {},
                    const char *what        = "receives_on_card_3")
        : child_process(what, {more})
    {
        std::istringstream line(read_line());
        line >> qpn >> target;
        EXPECT_NE(qpn, 0u);
    }

    uint32_t qpn    = 0;
    uint64_t target = 0;
};

void expect_arrival(port_card &card, port_user &user, remote &there,
                    uint32_t size, uint32_t tag)
{
    const uint64_t source = card.allocate_mapped(8 * mebi);
    mark(card, source, size, tag);
    user.write(source, there.target, size, tag);
    user.ring();
    EXPECT_EQ(there.read_line(), "good");
    EXPECT_TRUE(user.next(true).has_value());
}

void dismiss(port_card &card, port_user &user, remote &there)
{
    const uint64_t source = card.allocate_mapped(mebi);
    user.write(source, there.target, 64, 0);
    user.ring();
    EXPECT_EQ(there.wait().exit_code, 0);
}

/* The number of what was destroyed can be had again. */
void expect_drained(const port_card &card)
{
    hbldv_query_port_attr attr{};
    EXPECT_TRUE(wait_until([&] {
        return (HBLDV(query_port)(card.context, 1, &attr) == 0) &&
               (attr.num_allocated_qps == 0);
    }));
}

/* With few retries: a peer that goes, and another one that comes. */
GAUDI_CHILD(outlives_its_peer)
{
    port_card card;
    port_user::options as;
    as.timeout = 12;
    {
        remote there;
        port_user user(card, 1, as);
        user.connect(there.qpn);
        expect_arrival(card, user, there, 4 * mebi, 1);
        const uint64_t source = card.allocate_mapped(8 * mebi);
        for (unsigned i = 0; i < 100; ++i) {
            user.write(source, there.target, 4 * mebi, 2);
        }
        user.ring();
        there.kill(SIGKILL); /* in the middle */
        GAUDI_CHILD_REQUIRE(card.event().event_type == IBV_EVENT_QP_REQ_ERR);
        GAUDI_CHILD_REQUIRE(user.state() == std::pair(IBV_QPS_ERR, 0x40u));
    }
    expect_drained(card);
    remote next;
    port_user user(card, 1, as);
    user.connect(next.qpn);
    expect_arrival(card, user, next, 65536, 3);
    dismiss(card, user, next);
    return ::testing::Test::HasFailure() ? 1 : 0;
}

/* For longer than for one that is gone. What is changed then was on its way. */
GAUDI_CHILD(waits_for_its_peer)
{
    constexpr std::chrono::microseconds timeout{4 << 12};
    port_card card;
    remote there;
    port_user::options as;
    as.timeout = 12;
    port_user user(card, 1, as);
    user.connect(there.qpn);
    const uint64_t source = card.allocate_mapped(8 * mebi);
    mark(card, source, 4 * mebi, 1);
    there.stop();
    user.write(source, there.target, 4 * mebi, 1);
    user.ring();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(wait_until([&] {
        return (std::chrono::steady_clock::now() - begin > 70 * timeout) &&
               (user.fifo_ci() == 1);
    }));
    mark(card, source, 65536, 2);
    there.kill(SIGCONT);
    EXPECT_EQ(there.read_line(), "good");
    EXPECT_TRUE(user.next(true).has_value());
    dismiss(card, user, there);
    return ::testing::Test::HasFailure() ? 1 : 0;
}

std::string phys_state(const std::string &sysfs, unsigned card)
{
    std::ifstream file(sysfs + "/class/infiniband/hbl_" + std::to_string(card) +
                       "/ports/1/phys_state");
    return {std::istreambuf_iterator<char>(file), {}};
}

GAUDI_CHILD(has_a_wire_cut_and_mended)
{
    const std::string sysfs = std::getenv("HLTHUNK_EMU_SYSFS");
    wired_pair pair;
    GAUDI_CHILD_REQUIRE(phys_state(sysfs, 0) == "5: LinkUp\n");
    GAUDI_CHILD_REQUIRE(api().hlthunk_emu_fault("port=down@3.0") == 0);
    for (const port_card *each : {&pair.card, &pair.other}) {
        const auto event = each->event();
        GAUDI_CHILD_REQUIRE(event.event_type == IBV_EVENT_PORT_ERR);
        GAUDI_CHILD_REQUIRE(event.element.port_num == 0);
    }
    GAUDI_CHILD_REQUIRE(phys_state(sysfs, 0) == "3: Disabled\n");
    GAUDI_CHILD_REQUIRE(phys_state(sysfs, 3) == "3: Disabled\n");
    mark(pair.card, pair.source, 64, 1);
    pair.here.write(pair.source, pair.target, 64, 1);
    pair.here.ring();
    GAUDI_CHILD_REQUIRE(wait_until([&] { return pair.here.fifo_ci() == 1; }));
    GAUDI_CHILD_REQUIRE(!marked(pair.other, pair.target, 64, 1));
    GAUDI_CHILD_REQUIRE(api().hlthunk_emu_fault("port=up@0") == 0);
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_PORT_ACTIVE);
    GAUDI_CHILD_REQUIRE(pair.here.next(true).has_value());
    GAUDI_CHILD_REQUIRE(marked(pair.other, pair.target, 64, 1));
    GAUDI_CHILD_REQUIRE(phys_state(sysfs, 3) == "5: LinkUp\n");
    return 0;
}

} // namespace

TEST(emu_port_processes, a_peer_that_is_killed_is_an_error_after_all_retries)
{
    EXPECT_TRUE(child_passes("outlives_its_peer",
                             {{{"HLTHUNK_EMU_PORT_RETRIES", "60"}}}));
}

TEST(emu_port_processes, messages_wait_for_a_peer_that_comes_late)
{
    port_card card(0);
    port_card other(3);
    port_user::options as;
    as.timeout = 8;
    port_user here(card, 1, as);
    port_user there(other, 1);
    const uint64_t source = card.allocate_mapped(mebi);
    const uint64_t target = other.allocate_mapped(mebi);
    here.connect(there.qpn());
    here.write(source, target, 64, 9);
    here.ring();
    EXPECT_TRUE(wait_until([&] { return here.fifo_ci() == 1; }));
    there.connect(here.qpn());
    const auto received = there.next(false);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->tag, 9u);
    EXPECT_TRUE(here.next(true).has_value());
}

TEST(emu_port_processes, what_a_peer_has_not_taken_is_neither_lost_nor_resent)
{
    EXPECT_TRUE(child_passes("waits_for_its_peer",
                             {{{"HLTHUNK_EMU_PORT_RETRIES", "60"}}}));
}

TEST(emu_port_processes, a_cut_wire_carries_nothing_until_it_is_mended)
{
    const scratch_directory files;
    EXPECT_TRUE(child_passes("has_a_wire_cut_and_mended",
                             {{{"HLTHUNK_EMU_SYSFS", files.path("sys")},
                               {"HLTHUNK_EMU_NODE", files.path("")}}}));
}
