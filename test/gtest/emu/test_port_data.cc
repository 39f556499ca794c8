/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes through the ports of two cards in one process. */
#include "gtest/emu/ports_fixture.h"

#include <future>

#include <sys/mman.h>

using namespace gaudi::test;

namespace {

constexpr uint32_t retries_syndrome = 0x40;

/* Write marked memory, and look at everything that is to come of it. */
void expect_arrival(wired_pair &pair, uint32_t size, uint32_t tag)
{
    mark(pair.card, pair.source, size, tag);
    pair.here.write(pair.source, pair.target, size, tag);
    pair.here.ring();
    const auto sent     = pair.here.next(true);
    const auto received = pair.there.next(false);
    ASSERT_TRUE(sent.has_value() && received.has_value());
    EXPECT_TRUE(sent->as_requester);
    EXPECT_EQ(sent->qpn, pair.here.queues.qp_num);
    EXPECT_EQ(sent->tag, tag + 1000) << "of the receive WQE";
    EXPECT_EQ(sent->size, size);
    EXPECT_FALSE(received->as_requester);
    EXPECT_EQ(received->qpn, pair.there.queues.qp_num);
    EXPECT_EQ(received->tag, tag) << "of the send WQE";
    EXPECT_EQ(received->size, size);
    EXPECT_TRUE(marked(pair.other, pair.target, size, tag));
}

/* A port's write between host memory of both cards. */
GAUDI_CHILD(writes_through_a_gaudi3)
{
    port_card card(0);
    port_card other(4);
    port_user here(card, 9);
    port_user there(other, 1);
    here.connect(there.qpn());
    there.connect(here.qpn());
    std::vector<char> from(65536);
    std::vector<char> to(65536);
    fill_pattern(from.data(), from.size(), 7);
    const uint64_t source = card.map_host(from.data(), from.size());
    const uint64_t target = other.map_host(to.data(), to.size());
    GAUDI_CHILD_REQUIRE(here.fifo->size == 128);
    for (uint32_t i = 0; i < 300; ++i) { /* PI goes on behind the queue */
        here.write(source, target, 65536, i);
        here.ring();
        const auto sent = here.next(true);
        GAUDI_CHILD_REQUIRE(sent.has_value() && (sent->tag == i + 1000));
        const auto received = there.next(false);
        GAUDI_CHILD_REQUIRE(received.has_value() && (received->tag == i));
        GAUDI_CHILD_REQUIRE(
            wait_until([&] { return here.fifo_ci() == (2 * (i + 1)) % 2048; }));
    }
    GAUDI_CHILD_REQUIRE(has_pattern(to.data(), to.size(), 7));
    return 0;
}

GAUDI_CHILD(names_another_key)
{
    port_user::options here;
    port_user::options there;
    here.timeout    = 8;
    here.remote_key = 1;
    there.local_key = 2;
    wired_pair pair(here, there);
    pair.here.write(pair.source, pair.target, 64);
    pair.here.ring();
    const auto fatal = pair.other.event();
    GAUDI_CHILD_REQUIRE(fatal.event_type == IBV_EVENT_QP_FATAL);
    GAUDI_CHILD_REQUIRE(fatal.element.qp == pair.there.qp);
    GAUDI_CHILD_REQUIRE(pair.there.state() == std::pair(IBV_QPS_ERR, 0x10u));
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_QP_REQ_ERR);
    GAUDI_CHILD_REQUIRE(pair.here.state() ==
                        std::pair(IBV_QPS_ERR, retries_syndrome));
    return 0;
}

/* Unmapped memory resets the card that looks for it. */
GAUDI_CHILD(sends_what_is_not_mapped)
{
    wired_pair pair;
    pair.here.write(pair.source + 16 * device_page(), pair.target, 64);
    pair.here.ring();
    ibv_async_event event = pair.card.event();
    while (event.event_type == IBV_EVENT_QP_REQ_ERR) {
        event = pair.card.event();
    }
    GAUDI_CHILD_REQUIRE(event.event_type == IBV_EVENT_DEVICE_FATAL);
    GAUDI_CHILD_REQUIRE((event.element.port_num & 0xffff) == 0xffff);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_status_info(pair.card.fd()) ==
                        gaudi::shim::device_in_reset);
    return 0; /* destroying succeeds without the card */
}

GAUDI_CHILD(writes_to_what_is_not_mapped)
{
    port_user::options as;
    as.timeout = 8;
    wired_pair pair(as);
    pair.here.write(pair.source, pair.target + 16 * device_page(), 64);
    pair.here.ring();
    ibv_async_event event = pair.other.event();
    while (event.event_type == IBV_EVENT_QP_FATAL) {
        event = pair.other.event();
    }
    GAUDI_CHILD_REQUIRE(event.event_type == IBV_EVENT_DEVICE_FATAL);
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_QP_REQ_ERR);
    GAUDI_CHILD_REQUIRE(pair.here.state().second == retries_syndrome);
    return 0;
}

/* The program unmaps what its port reads, or what a peer writes. */
GAUDI_CHILD(unmaps_host_memory_of_ports)
{
    for (const bool is_target : {true, false}) {
        port_user::options as;
        as.timeout = 8;
        wired_pair pair(as);
        constexpr size_t size = 4 * mebi;
        void *const area      = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        GAUDI_CHILD_REQUIRE(area != MAP_FAILED);
        port_card &owner    = is_target ? pair.other : pair.card;
        const uint64_t host = owner.map_host(area, size);
        GAUDI_CHILD_REQUIRE(munmap(area, size) == 0);
        pair.here.write(is_target ? pair.source : host,
                        is_target ? host : pair.target, size);
        pair.here.ring();
        if (is_target) {
            const auto event = pair.other.event();
            GAUDI_CHILD_REQUIRE(event.event_type == IBV_EVENT_QP_FATAL);
        }
        const auto event = pair.card.event();
        GAUDI_CHILD_REQUIRE(event.event_type == IBV_EVENT_QP_REQ_ERR);
        GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_status_info(owner.fd()) ==
                            gaudi::shim::device_operational);
    }
    return 0;
}

const environment few_retries = {{"HLTHUNK_EMU_PORT_RETRIES", "3"}};

} // namespace

TEST(emu_port_data, a_write_arrives_and_both_sides_hear_of_it)
{
    wired_pair pair;
    uint32_t tag = 1;
    for (const uint32_t size : {1u, 64u, 16384u, 16385u, 4u << 20}) {
        expect_arrival(pair, size, tag++);
    }
}

TEST(emu_port_data, queues_are_rings)
{
    wired_pair pair;
    for (uint32_t i = 0; i < 300; ++i) {
        pair.here.write(pair.source, pair.target, 64, i);
        pair.here.ring();
        const auto sent = pair.here.next(true);
        ASSERT_TRUE(sent.has_value());
        EXPECT_EQ(sent->index, i % 128);
        const auto received = pair.there.next(false);
        ASSERT_TRUE(received.has_value());
        EXPECT_EQ(received->tag, i);
        EXPECT_TRUE(
            wait_until([&] { return pair.here.fifo_ci() == (i + 1) % 64; }));
    }
}

TEST(emu_port_data, a_doorbell_of_two_halves_is_one)
{
    wired_pair pair;
    pair.here.write(pair.source, pair.target, 64, 1);
    const uint64_t value = pair.here.doorbell();
    auto *half           = reinterpret_cast<volatile uint32_t *>(
        static_cast<char *>(pair.here.fifo->regs_cpu_addr) +
        pair.here.fifo->regs_offset);
    half[0] = static_cast<uint32_t>(value);
    half[1] = static_cast<uint32_t>(value >> 32);
    EXPECT_TRUE(pair.here.next(true).has_value());
    EXPECT_TRUE(wait_until([&] { return pair.here.fifo_ci() == 1; }));
}

TEST(emu_port_data, wqes_without_completions_make_none)
{
    wired_pair pair;
    pair.here.write(pair.source, pair.target, 64, 1, [](auto &send, auto &own) {
        send[7] = 0;
        own[1]  = 0;
    });
    pair.here.write(pair.source, pair.target, 64, 2);
    pair.here.ring();
    const auto sent     = pair.here.next(true);
    const auto received = pair.there.next(false);
    ASSERT_TRUE(sent.has_value() && received.has_value());
    EXPECT_EQ(sent->index, 1u);
    EXPECT_EQ(received->tag, 2u);
}

TEST(emu_port_data, what_a_port_does_not_take_is_an_error_of_its_queue_pair)
{
    using send_words = port_user::send_words;
    using own_words  = port_user::receive_words;
    const struct {
        const char *what;
        void (*change)(send_words &, own_words &);
        unsigned expected;
    } rows[] = {
        {"index of the send WQE",
         [](send_words &send, own_words &) { send[0] += 1 << 8; }, 0x91},
        {"index of the receive WQE",
         [](send_words &, own_words &own) { own[0] += 1 << 8; }, 0x11},
        {"no bytes", [](send_words &send, own_words &) { send[1] = 0; }, 0x84},
        {"too many bytes",
         [](send_words &send, own_words &) { send[1] = (1u << 30) + 1; }, 0x88},
        {"send", [](send_words &send, own_words &) { send[0]--; }, 0xab},
        {"reduction", [](send_words &send, own_words &) { send[0] |= 1 << 16; },
         0xab},
        {"inline", [](send_words &send, own_words &) { send[0] |= 1 << 30; },
         0xab},
        {"sync object",
         [](send_words &send, own_words &) { send[7] |= 1u << 30; }, 0xab},
    };
    for (const auto &row : rows) {
        wired_pair pair;
        pair.here.write(pair.source, pair.target, 64, 1, row.change);
        pair.here.ring();
        const auto event = pair.card.event();
        EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR) << row.what;
        EXPECT_EQ(event.element.qp, pair.here.qp);
        EXPECT_EQ(pair.here.state(), std::pair(IBV_QPS_ERR, row.expected))
            << row.what;
        EXPECT_NE(pair.here.to_send(), 0) << "ERR leads to RESET alone";
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RESET;
        EXPECT_EQ(HLIBV(modify_qp)(pair.here.qp, &attr, IBV_QP_STATE), 0);
    }
}

TEST(emu_port_data, a_doorbell_beyond_the_work_queue_is_an_error)
{
    port_card card;
    port_user user(card, 1);
    user.connect(1); /* nobody is there, so nothing ends */
    const uint64_t source = card.allocate_mapped(mebi);
    for (unsigned i = 0; i < 127; ++i) {
        user.write(source, source, 64);
    }
    user.ring();
    EXPECT_TRUE(wait_until([&] { return user.fifo_ci() == 1; }));
    user.ring(user.doorbell() - 100);
    EXPECT_EQ(card.event().event_type, IBV_EVENT_QP_REQ_ERR);
    EXPECT_EQ(user.state().second, 0x43u);
}

TEST(emu_port_data, a_doorbell_of_nobody_is_an_error_of_its_fifo)
{
    wired_pair pair;
    pair.here.ring((uint64_t{77} << 32) | 1);
    const auto event = pair.card.event();
    EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(event.element.port_num & 0xffff, 0) << "the first port";
    EXPECT_EQ(static_cast<uint32_t>(event.element.port_num) >> 16,
              pair.here.fifo->usr_fifo_num);
}

TEST(emu_port_data, a_full_completion_queue_is_an_error)
{
    port_user::options as;
    as.cqes = 4;
    wired_pair pair(as);
    for (uint32_t i = 0; i < 5; ++i) {
        pair.here.write(pair.source, pair.target, 64, i);
        pair.here.ring();
        ASSERT_TRUE(pair.there.next(false).has_value());
    }
    const auto event = pair.card.event();
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, pair.here.qp->send_cq);
    for (uint32_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(pair.here.next(true).has_value());
    }
}

/* Its next event is of an error that its queue pair makes. */
void fail(wired_pair &pair)
{
    pair.here.write(pair.source, pair.target, 0);
    pair.here.ring();
    pollfd told{pair.card.context->async_fd, POLLIN, 0};
    ASSERT_EQ(poll(&told, 1, 20000), 1);
}

TEST(emu_port_data, events_go_with_the_queue_pair_they_are_of)
{
    wired_pair pair;
    fail(pair);
    pair.here.destroy();
    const int fd = pair.card.context->async_fd;
    ASSERT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ibv_async_event found{};
    EXPECT_EQ(HLIBV(get_async_event)(pair.card.context, &found), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(emu_port_data, a_queue_pair_stays_until_its_event_is_acknowledged)
{
    wired_pair pair;
    fail(pair);
    ibv_async_event found{};
    ASSERT_EQ(HLIBV(get_async_event)(pair.card.context, &found), 0);
    auto destroyed =
        std::async(std::launch::async, [&] { pair.here.destroy(); });
    EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(100)),
              std::future_status::timeout);
    HLIBV(ack_async_event)(&found);
    destroyed.get();
}

TEST(emu_port_data, a_gaudi3_writes_host_memory)
{
    EXPECT_TRUE(child_passes("writes_through_a_gaudi3",
                             {{{"HLTHUNK_EMU_ASIC", "gaudi3"}}}));
}

TEST(emu_port_data, a_peer_has_to_name_the_key)
{
    EXPECT_TRUE(child_passes("names_another_key", {few_retries}));
}

TEST(emu_port_data, unmapped_memory_to_send_resets_the_card)
{
    EXPECT_TRUE(child_passes("sends_what_is_not_mapped"));
}

TEST(emu_port_data, host_memory_that_is_unmapped_is_an_error_of_queue_pairs)
{
    const child_result result =
        run_child("unmaps_host_memory_of_ports", {few_retries});
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 0) << result.error;
}

TEST(emu_port_data, unmapped_memory_to_write_resets_the_card_of_the_peer)
{
    EXPECT_TRUE(child_passes("writes_to_what_is_not_mapped", {few_retries}));
}
