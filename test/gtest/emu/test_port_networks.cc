/* SPDX-License-Identifier: BSD-3-Clause */
/* External ports: between boxes, and between the cards of one. */
#include "common/scratch.h"
#include "gtest/emu/ports_fixture.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

constexpr uint8_t external = 9; /* port 8 of an HLS-2's cards */
constexpr uint8_t by_mac   = 0; /* GIDs */
constexpr uint8_t by_ip    = 3;

/* Beside the one of this process. */
environment in_box(const std::string &name, environment more = {})
{
    more.emplace_back("HLTHUNK_EMU_PORTS", "all");
    more.emplace_back("HLTHUNK_EMU_NODE",
                      std::getenv("HLTHUNK_EMU_NODE") + ("-" + name));
    return more;
}

const environment few_retries = {{"HLTHUNK_EMU_PORT_RETRIES", "50"}};

std::string text_of(const ibv_gid &gid)
{
    char text[INET6_ADDRSTRLEN];
    return inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
}

ibv_gid gid_of(const std::string &text)
{
    ibv_gid gid{};
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), gid.raw), 1) << text;
    return gid;
}

ibv_gid gid_of(const port_card &card, uint8_t port, int index)
{
    ibv_gid gid{};
    EXPECT_EQ(HLIBV(query_gid)(card.context, port, index, &gid), 0);
    return gid;
}

int gid_type(const port_card &card, uint8_t port, unsigned index)
{
    auto *query = hbl<int(ibv_context *, uint8_t, unsigned, int *)>(
        "hlibv_query_gid_type");
    int type = -1;
    EXPECT_EQ(query(card.context, port, index, &type), 0);
    return type;
}

port_user::options to_peer(const ibv_gid &peer, uint8_t own)
{
    port_user::options as;
    as.timeout = 12;
    as.peer    = peer;
    as.gid     = own;
    return as;
}

/* What one has to know of a peer in another box. */
struct letter {
    uint32_t qpn    = 0;
    uint64_t target = 0;
    std::string gid{};

    [[nodiscard]] std::string text() const
    {
        std::ostringstream line;
        line << qpn << ' ' << target << ' ' << gid;
        return line.str();
    }
    static letter read(const std::string &text)
    {
        letter found;
        std::istringstream(text) >> found.qpn >> found.target >> found.gid;
        EXPECT_NE(found.qpn, 0u) << text;
        return found;
    }
};

int own_gid()
{
    const char *wished = std::getenv("TEST_GID");
    return (wished != nullptr) ? std::atoi(wished) : by_ip;
}

/* Has card 5, and tells what comes. */
GAUDI_CHILD(receives_from_another_box)
{
    port_card card(5);
    const auto gid        = static_cast<uint8_t>(own_gid());
    const uint64_t memory = card.allocate_mapped(8 * mebi);
    port_user user(card, external,
                   to_peer(gid_of(std::getenv("TEST_PEER")), gid));
    tell_parent(letter{user.qpn(), memory, text_of(gid_of(card, external, gid))}
                    .text());
    user.connect(1);
    for (;;) {
        const auto got = user.next(false);
        GAUDI_CHILD_REQUIRE(got.has_value());
        if (got->tag == 0) {
            return 0;
        }
        GAUDI_CHILD_REQUIRE(marked(card, memory, got->size, got->tag));
        tell_parent("good");
    }
}

/* A card of this box, and one of another. */
struct two_boxes {
    explicit two_boxes(uint8_t gid)
        : card(0),
          child("receives_from_another_box",
                {in_box("other", {{"TEST_GID", std::to_string(gid)},
                                  {"TEST_PEER",
                                   text_of(gid_of(card, external, gid))}})}),
          there(letter::read(child.read_line())),
          user(card, external, to_peer(gid_of(there.gid), gid))
    {
        user.connect(there.qpn);
    }

    void write(uint32_t size, uint32_t tag)
    {
        mark(card, source, size, tag);
        user.write(source, there.target, size, tag);
        user.ring();
    }

    void expect_arrival(uint32_t size, uint32_t tag)
    {
        write(size, tag);
        EXPECT_EQ(child.read_line(), "good");
        EXPECT_TRUE(user.next(true).has_value());
    }

    int dismiss()
    {
        write(64, 0);
        const bool well =
            (child.wait().exit_code == 0) && !::testing::Test::HasFailure();
        return well ? 0 : 1;
    }

    port_card card;
    child_process child;
    letter there;
    port_user user;
    const uint64_t source = card.allocate_mapped(8 * mebi);
};

GAUDI_CHILD(writes_to_another_box)
{
    two_boxes pair(static_cast<uint8_t>(own_gid()));
    for (const uint32_t size : {64u, 16385u, 4u << 20}) {
        pair.expect_arrival(size, size);
    }
    return pair.dismiss();
}

GAUDI_CHILD(outlives_a_peer_in_another_box)
{
    two_boxes pair(by_ip);
    pair.expect_arrival(64, 1);
    for (unsigned i = 0; i < 100; ++i) {
        pair.user.write(pair.source, pair.there.target, 4 * mebi, 2);
    }
    pair.user.ring();
    pair.child.kill(SIGKILL); /* in the middle */
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_QP_REQ_ERR);
    GAUDI_CHILD_REQUIRE(pair.user.state() == std::pair(IBV_QPS_ERR, 0x40u));
    return 0;
}

/* A peer that is stopped takes what its socket has room for. */
GAUDI_CHILD(waits_for_a_peer_that_is_stopped)
{
    two_boxes pair(by_ip);
    pair.child.stop();
    pair.write(4 * mebi, 1);
    GAUDI_CHILD_REQUIRE(wait_until([&] { return pair.user.fifo_ci() == 1; }));
    pair.child.kill(SIGCONT);
    GAUDI_CHILD_REQUIRE(pair.child.read_line() == "good");
    return pair.dismiss();
}

/* Between two cards of one box, and with what becomes of wrong addresses. */
GAUDI_CHILD(addresses_ports)
{
    port_card card(0);
    port_card other(5);
    std::set<std::string> known;
    for (const port_card *each : {&card, &other}) {
        for (const uint8_t port : {external, uint8_t{23}, uint8_t{24}}) {
            for (int i = 0; i < 4; ++i) {
                const std::string text = text_of(gid_of(*each, port, i));
                EXPECT_EQ(gid_type(*each, port, static_cast<unsigned>(i)),
                          i % 2);
                EXPECT_EQ(text.substr(0, 11),
                          (i < 2) ? "fe80::b2fd:" : "::ffff:127.");
                known.insert(text);
            }
            EXPECT_EQ(text_of(gid_of(*each, port, 4)), "::");
        }
    }
    EXPECT_EQ(known.size(), 12u) << "two of each port";
    EXPECT_EQ(text_of(gid_of(card, 1, 0)),
              "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    ibv_port_attr attr{};
    auto *query =
        hbl<int(ibv_context *, uint8_t, ibv_port_attr *)>("hlibv_query_port");
    EXPECT_EQ(query(card.context, external, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(attr.phys_state, 5);
    EXPECT_EQ(attr.gid_tbl_len, 13);

    const ibv_gid mac     = gid_of(other, 23, by_mac);
    const ibv_gid ip      = gid_of(other, 23, by_ip);
    const auto receive_as = [&](port_user::options as) {
        port_user user(card, external, as);
        const int ret = user.to_receive(1);
        EXPECT_EQ(user.state().first, (ret == 0) ? IBV_QPS_RTR : IBV_QPS_INIT);
        return ret;
    };
    EXPECT_EQ(receive_as({}), EINVAL) << "no address";
    EXPECT_EQ(receive_as(to_peer(ip, by_mac)), EINVAL) << "of another kind";
    EXPECT_EQ(receive_as(to_peer(ip, 7)), EINVAL) << "no own GID";
    ibv_gid nobodys = ip;
    nobodys.raw[14] ^= 0x40;
    EXPECT_EQ(receive_as(to_peer(nobodys, by_ip)), ETIMEDOUT);
    nobodys.raw[12] = 10;
    EXPECT_EQ(receive_as(to_peer(nobodys, by_ip)), ENETUNREACH);
    EXPECT_EQ(receive_as(to_peer(ip, by_ip)), 0);
    EXPECT_EQ(receive_as(to_peer(mac, by_mac)), 0);

    auto as   = to_peer(ip, by_ip);
    as.window = (1u << 23) + 1;
    port_user controlled(card, external, as);
    EXPECT_EQ(controlled.to_receive(1), 0);
    EXPECT_EQ(controlled.to_send(), EINVAL);
    controlled.destroy();
    as.window = 24;
    port_user here(card, external, as);
    port_user there(other, 23, to_peer(gid_of(card, external, by_ip), by_ip));
    here.connect(there.qpn());
    there.connect(here.qpn());
    const uint64_t source = card.allocate_mapped(mebi);
    const uint64_t target = other.allocate_mapped(mebi);
    mark(card, source, mebi, 3);
    here.write(source, target, mebi, 3);
    here.ring();
    EXPECT_TRUE(there.next(false).has_value());
    EXPECT_TRUE(here.next(true).has_value());
    EXPECT_TRUE(marked(other, target, mebi, 3));
    return ::testing::Test::HasFailure() ? 1 : 0;
}

GAUDI_CHILD(writes_to_a_mac_that_nobody_has)
{
    port_card card(0);
    ibv_gid nobodys = gid_of(card, external, by_mac);
    nobodys.raw[14] ^= 0x40;
    const uint64_t source = card.allocate_mapped(mebi);
    port_user user(card, external, to_peer(nobodys, by_mac));
    user.connect(1);
    user.write(source, source, 64);
    user.ring();
    GAUDI_CHILD_REQUIRE(card.event().event_type == IBV_EVENT_QP_REQ_ERR);
    GAUDI_CHILD_REQUIRE(user.state() == std::pair(IBV_QPS_ERR, 0x40u));
    return 0;
}

std::string shown(const std::string &sysfs, const std::string &file)
{
    std::ifstream from(sysfs + "/class/infiniband/hbl_0/ports/9/" + file);
    return {std::istreambuf_iterator<char>(from), {}};
}

GAUDI_CHILD(has_its_network_cut_and_mended)
{
    const std::string sysfs = std::getenv("HLTHUNK_EMU_SYSFS");
    two_boxes pair(by_ip);
    GAUDI_CHILD_REQUIRE(shown(sysfs, "phys_state") == "5: LinkUp\n");
    GAUDI_CHILD_REQUIRE(shown(sysfs, "state") == "4: ACTIVE\n");
    GAUDI_CHILD_REQUIRE(shown(sysfs, "gid_attrs/types/3") == "RoCE v2\n");
    std::string gid = shown(sysfs, "gids/3");
    gid.pop_back();
    GAUDI_CHILD_REQUIRE(text_of(gid_of(gid)) ==
                        text_of(gid_of(pair.card, external, by_ip)));
    GAUDI_CHILD_REQUIRE(api().hlthunk_emu_fault("port=down@0.8") == 0);
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_PORT_ERR);
    GAUDI_CHILD_REQUIRE(shown(sysfs, "phys_state") == "3: Disabled\n");
    pair.write(64, 1);
    GAUDI_CHILD_REQUIRE(wait_until([&] { return pair.user.fifo_ci() == 1; }));
    GAUDI_CHILD_REQUIRE(!pair.child.has_output(0));
    GAUDI_CHILD_REQUIRE(api().hlthunk_emu_fault("port=up@0.8") == 0);
    GAUDI_CHILD_REQUIRE(pair.card.event().event_type == IBV_EVENT_PORT_ACTIVE);
    GAUDI_CHILD_REQUIRE(pair.child.read_line() == "good");
    return pair.dismiss();
}

GAUDI_CHILD(sets_an_external_port_up)
{
    GAUDI_CHILD_REQUIRE(port_card(0).set_up(external) == 0);
    return 0;
}

/* Its context is closed later than the card, which others have meanwhile. */
GAUDI_CHILD(loses_a_card_to_another_process)
{
    own_card lost(0);
    ibv_context *const context =
        port_card::open(port_card::device_of(0), lost.fd());
    GAUDI_CHILD_REQUIRE(context != nullptr);
    close_card(lost);
    pollfd told{context->async_fd, POLLIN, 0};
    GAUDI_CHILD_REQUIRE(poll(&told, 1, 20000) == 1);
    EXPECT_TRUE(child_passes("sets_an_external_port_up"));
    EXPECT_EQ(HLIBV(close_device)(context), 0);
    return ::testing::Test::HasFailure() ? 1 : 0;
}

/* By somebody else of this machine. */
GAUDI_CHILD(finds_its_address_taken)
{
    std::string address;
    {
        const port_card card(0);
        address = text_of(gid_of(card, external, by_ip)).substr(7);
    }
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string path =
        "hlthunk-emu/" + std::to_string(geteuid()) + "/network-1/" + address;
    path.copy(&name.sun_path[1], path.size());
    const int taken = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    GAUDI_CHILD_REQUIRE(
        bind(taken, reinterpret_cast<const sockaddr *>(&name),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    path.size())) == 0);
    const port_card card(0);
    EXPECT_EQ(card.set_up(external), ENODEV);
    EXPECT_EQ(text_of(gid_of(card, external, by_ip)), "::");
    EXPECT_EQ(card.set_up(external + 14), 0) << "another one";
    close(taken);
    return ::testing::Test::HasFailure() ? 1 : 0;
}

} // namespace

TEST(emu_port_networks, ports_have_addresses_and_take_those_of_others)
{
    EXPECT_TRUE(child_passes("addresses_ports", {in_box("one")}));
}

TEST(emu_port_networks, a_write_arrives_in_another_box_by_ip_and_by_mac)
{
    for (const uint8_t gid : {by_ip, by_mac}) {
        EXPECT_TRUE(
            child_passes("writes_to_another_box",
                         {in_box("one", {{"TEST_GID", std::to_string(gid)}})}));
    }
}

TEST(emu_port_networks, a_write_of_a_modelled_box_arrives_in_another)
{
    const scratch_directory files;
    EXPECT_TRUE(child_passes(
        "writes_to_another_box",
        {in_box("one",
                {{"HLTHUNK_EMU_TIMING",
                  files.file("figures",
                             R"({"port": 0.125, "port_latency": 0})")}})}));
}

TEST(emu_port_networks, a_peer_that_is_killed_is_an_error_after_all_retries)
{
    EXPECT_TRUE(
        child_passes("outlives_a_peer_in_another_box", {in_box("one")}));
}

TEST(emu_port_networks, a_peer_that_is_stopped_is_waited_for)
{
    EXPECT_TRUE(
        child_passes("waits_for_a_peer_that_is_stopped", {in_box("one")}));
}

TEST(emu_port_networks, a_mac_that_nobody_has_is_an_error_after_all_retries)
{
    EXPECT_TRUE(
        child_passes("writes_to_a_mac_that_nobody_has", {in_box("one")}));
}

TEST(emu_port_networks, an_external_port_can_be_cut_off_and_mended)
{
    const scratch_directory files;
    EXPECT_TRUE(child_passes(
        "has_its_network_cut_and_mended",
        {in_box("one", {{"HLTHUNK_EMU_SYSFS", files.path("sys")}})}));
}

TEST(emu_port_networks, a_card_that_was_lost_leaves_its_addresses)
{
    EXPECT_TRUE(
        child_passes("loses_a_card_to_another_process", {in_box("one")}));
}

TEST(emu_port_networks, a_port_whose_address_is_taken_is_down_and_says_so)
{
    const child_result ended =
        run_child("finds_its_address_taken", {in_box("one")});
    EXPECT_EQ(ended.exit_code, 0) << ended.error;
    EXPECT_EQ(lines_with(ended.error, "give HLTHUNK_EMU_NODE another").size(),
              1u)
        << ended.error;
}
