/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs may do with the ports of a card, and what they are told. */
#include "hlthunk_emulator/ports/wiring.h"
#include "gtest/emu/ports_fixture.h"

#include <map>

using namespace gaudi::test;

namespace {

namespace box = gaudi::emu;

constexpr uint8_t external = 9; /* port 8 of an HLS-2's cards */

} // namespace

TEST(emu_ports, three_lead_to_each_other_card_and_back)
{
    for (unsigned card = 0; card < 8; ++card) {
        std::map<unsigned, unsigned> to;
        for (unsigned port = 0; port < box::ports_of_card; ++port) {
            const auto peer = box::peer_of({card, port});
            const bool out  = ((box::ports_of(card).external >> port) & 1) != 0;
            EXPECT_EQ(peer.has_value(), !out);
            if (peer.has_value()) {
                ++to[peer->card];
                EXPECT_EQ(box::peer_of(*peer), (box::port_end{card, port}));
            }
        }
        EXPECT_EQ(to.size(), 7u);
        for (const auto &[other, count] : to) {
            EXPECT_EQ(count, 3u) << card << " to " << other;
        }
    }
}

TEST(emu_ports, hl_thunk_tells_which_there_are)
{
    const own_card card;
    const auto info = info_of(card.fd());
    EXPECT_EQ(info.nic_ports_mask, 0xffffffu);
    EXPECT_EQ(info.nic_ports_external_mask, 0xc00100u);
}

TEST(emu_ports, each_card_is_a_verbs_device)
{
    int count         = 0;
    ibv_device **list = HLIBV(get_device_list)(&count);
    EXPECT_EQ(count, 8);
    EXPECT_STREQ(HLIBV(get_device_name)(list[3]), "hbl_3");
    EXPECT_TRUE(HBLDV(is_supported)(list[3]));
    EXPECT_EQ(list[8], nullptr);
    HLIBV(free_device_list)(list);
    const port_card card;
    ibv_device_attr attr{};
    ASSERT_EQ(HLIBV(query_device)(card.context, &attr), 0);
    EXPECT_EQ(attr.vendor_part_id, 0x1020u);
    EXPECT_EQ(attr.phys_port_cnt, 24);
    hbldv_device_attr more{};
    ASSERT_EQ(HBLDV(query_device)(card.context, &more), 0);
    EXPECT_EQ(more.num_ports, 24);
    EXPECT_EQ(more.hw_ports_mask, 0xffffffu);
    EXPECT_EQ(more.ext_ports_mask, (1u << 9) | (1u << 23) | (1u << 24));
}

TEST(emu_ports, a_variant_has_plain_names)
{
    int count  = 0;
    auto *list = hbl<decltype(ibv_get_device_list)>("ibv_get_device_list",
                                                    "hlthunk-emu-plain");
    ASSERT_NE(list, nullptr);
    EXPECT_NE(list(&count), nullptr);
    EXPECT_EQ(count, 8);
}

TEST(emu_ports, what_hcl_looks_up_is_there_and_collectives_fail)
{
    for (const char *name : {"hbldv_reserve_coll_qps", "hbldv_migrate_qp",
                             "hlibv_query_gid_type", "hlibv_query_port"}) {
        EXPECT_NE(hbl<int()>(name), nullptr);
    }
    EXPECT_EQ(hbl<int(ibv_qp *)>("hbldv_migrate_qp")(nullptr), EOPNOTSUPP);
}

TEST(emu_ports, a_card_has_one_context)
{
    const port_card first;
    EXPECT_EQ(port_card::open(first.device, first.fd()), nullptr);
    EXPECT_EQ(errno, EBUSY);
}

TEST(emu_ports, a_context_needs_the_open_compute_node_of_its_card)
{
    const own_card card(0);
    const own_card other(1);
    const control_node control;
    ibv_device *const device = port_card::device_of(0);
    for (const auto &[fd, expected] :
         {std::pair(-1, EBADF), {control.fd(), EBADF}, {other.fd(), EINVAL}}) {
        EXPECT_EQ(port_card::open(device, fd), nullptr);
        EXPECT_EQ(errno, expected) << fd;
    }
    EXPECT_EQ(port_card::open(device, card.fd(), uint64_t{1} << 25), nullptr)
        << "there is no such port";
    EXPECT_EQ(errno, EINVAL);
}

TEST(emu_ports, a_context_has_one_protection_domain)
{
    const port_card card;
    EXPECT_EQ(HLIBV(alloc_pd)(card.context), nullptr);
    EXPECT_EQ(errno, ESRCH);
    EXPECT_EQ(HLIBV(dealloc_pd)(card.pd), 0);
    EXPECT_NE(HLIBV(alloc_pd)(card.context), nullptr);
}

TEST(emu_ports, work_queues_have_limits)
{
    const port_card card;
    const struct {
        uint32_t queues;
        uint32_t entries;
        int expected;
    } rows[]      = {{1, 128, EINVAL}, {8193, 128, EINVAL}, {2, 8, EINVAL},
                     {2, 100, EINVAL}, {2, 65536, EINVAL},  {2, 16, 0},
                     {8192, 32768, 0}};
    uint32_t port = 1;
    for (const auto &row : rows) {
        EXPECT_EQ(card.set_up(port, row.queues, row.entries), row.expected)
            << row.queues << " of " << row.entries;
        port += (row.expected == 0) ? 1 : 0;
    }
}

TEST(emu_ports, a_port_is_set_up_once_and_first)
{
    const port_card card;
    EXPECT_EQ(card.create_cq(1), nullptr);
    EXPECT_EQ(errno, EPERM);
    hbldv_usr_fifo_attr attr{};
    attr.port_num = 1;
    EXPECT_EQ(HBLDV(create_usr_fifo)(card.context, &attr), nullptr);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(card.set_up(1), 0);
    EXPECT_EQ(card.set_up(1), EPERM);
}

TEST(emu_ports, ports_that_are_down_or_of_no_context_are_refused)
{
    const port_card card(0, 2); /* port 1 alone */
    EXPECT_EQ(card.set_up(2), EINVAL);
    EXPECT_EQ(card.set_up(0), EINVAL);
    EXPECT_EQ(card.set_up(25), EINVAL);
    const port_card other(1);
    EXPECT_EQ(other.set_up(external), ENODEV);
}

TEST(emu_ports, show_their_state)
{
    const port_card card;
    ibv_port_attr attr{};
    auto *query =
        hbl<int(ibv_context *, uint8_t, ibv_port_attr *)>("hlibv_query_port");
    ASSERT_EQ(query(card.context, 1, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(attr.phys_state, 5);
    EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);
    EXPECT_EQ(attr.gid_tbl_len, 1);
    ASSERT_EQ(query(card.context, external, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_DOWN);
    EXPECT_EQ(attr.phys_state, 3);
    EXPECT_EQ(query(card.context, 25, &attr), EINVAL);
    ibv_gid gid{};
    ASSERT_EQ(HLIBV(query_gid)(card.context, 1, 0, &gid), 0);
    EXPECT_EQ(gid.global.interface_id, UINT64_MAX);
}

TEST(emu_ports, completion_queues_are_rounded_and_limited)
{
    const port_card card;
    ASSERT_EQ(card.set_up(1), 0);
    for (const auto &[wished, expected] :
         {std::pair(1, 4), {100, 128}, {8192, 8192}}) {
        ibv_cq *const made = card.create_cq(1, wished);
        ASSERT_NE(made, nullptr);
        EXPECT_EQ(made->cqe, expected);
        hbldv_query_cq_attr attr{};
        EXPECT_EQ(HBLDV(query_cq)(made, &attr), 0);
        EXPECT_EQ(attr.cq_size % 4096, 0u) << "bytes of pages";
        EXPECT_GE(attr.cq_size, static_cast<uint32_t>(expected) * 16);
        EXPECT_EQ(HLIBV(destroy_cq)(made), 0);
    }
    EXPECT_EQ(card.create_cq(1, 8193), nullptr);
    EXPECT_EQ(errno, EINVAL);
    for (unsigned i = 0; i < 14; ++i) {
        ASSERT_NE(card.create_cq(1, 4), nullptr);
    }
    EXPECT_EQ(card.create_cq(1, 4), nullptr) << "a port has 14";
    EXPECT_EQ(errno, EBUSY);
}

TEST(emu_ports, a_port_has_thirty_doorbell_fifos)
{
    const port_card card;
    ASSERT_EQ(card.set_up(1), 0);
    hbldv_usr_fifo_attr attr{};
    attr.port_num        = 1;
    hbldv_usr_fifo *last = nullptr;
    for (unsigned i = 0; i < 30; ++i) {
        last = HBLDV(create_usr_fifo)(card.context, &attr);
        ASSERT_NE(last, nullptr);
        EXPECT_EQ(last->size, 512u) << "bytes";
    }
    EXPECT_EQ(HBLDV(create_usr_fifo)(card.context, &attr), nullptr);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(HBLDV(destroy_usr_fifo)(last), 0);
    EXPECT_NE(HBLDV(create_usr_fifo)(card.context, &attr), nullptr);
}

GAUDI_CHILD(has_ports_of_a_gaudi3)
{
    const port_card card;
    GAUDI_CHILD_REQUIRE(card.set_up(1) == 0);
    hbldv_query_port_attr known{};
    GAUDI_CHILD_REQUIRE(HBLDV(query_port)(card.context, 1, &known) == 0);
    GAUDI_CHILD_REQUIRE(known.max_num_of_usr_fifos == 11);
    GAUDI_CHILD_REQUIRE(known.max_num_of_cqs == 7);
    hbldv_usr_fifo_attr attr{};
    attr.port_num  = 1;
    unsigned fifos = 0;
    while (HBLDV(create_usr_fifo)(card.context, &attr) != nullptr) {
        ++fifos;
    }
    GAUDI_CHILD_REQUIRE(fifos == 11);
    unsigned cqs = 0;
    while (card.create_cq(1, 4) != nullptr) {
        ++cqs;
    }
    GAUDI_CHILD_REQUIRE(cqs == 7);
    return 0;
}

TEST(emu_ports, a_port_of_a_gaudi3_has_fewer_queues)
{
    EXPECT_TRUE(child_passes("has_ports_of_a_gaudi3",
                             {{{"HLTHUNK_EMU_ASIC", "gaudi3"}}}));
}

TEST(emu_ports, queue_pairs_go_their_way_with_all_attributes)
{
    port_card card;
    port_user user(card, 1);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(user.to_send(), EINVAL) << "not from INIT";
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    EXPECT_EQ(HLIBV(modify_qp)(user.qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN),
              EINVAL)
        << "attributes are missing";
    EXPECT_EQ(user.state().first, IBV_QPS_INIT);
    EXPECT_EQ(user.to_init(), 0) << "again";
    EXPECT_EQ(user.to_receive(1), 0);
    EXPECT_EQ(user.to_receive(1), EINVAL);
    EXPECT_EQ(user.to_send(), 0);
    EXPECT_EQ(user.state().first, IBV_QPS_RTS);
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(HLIBV(modify_qp)(user.qp, &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(user.qpn(), 0u);
}

TEST(emu_ports, the_number_of_a_queue_pair_is_free_when_it_has_drained)
{
    wired_pair pair;
    pair.here.destroy();
    port_card &card = pair.card;
    ASSERT_EQ(card.set_up(1), EPERM);
    hbldv_query_port_attr attr{};
    ASSERT_EQ(HBLDV(query_port)(card.context, 1, &attr), 0);
    EXPECT_EQ(attr.num_allocated_qps, 1u) << "it still receives";
    EXPECT_TRUE(wait_until([&] {
        return (HBLDV(query_port)(card.context, 1, &attr) == 0) &&
               (attr.num_allocated_qps == 0);
    }));
}

TEST(emu_ports, what_is_in_use_is_not_destroyed)
{
    port_card card;
    port_user user(card, 1);
    EXPECT_EQ(HLIBV(destroy_cq)(user.qp->send_cq), EBUSY);
    EXPECT_EQ(HLIBV(dealloc_pd)(card.pd), EBUSY);
}

TEST(emu_ports, a_forked_child_has_none)
{
    port_card card;
    port_user user(card, 1);
    const forked_process child([&] {
        GAUDI_CHILD_REQUIRE(card.set_up(2) == ENODEV);
        GAUDI_CHILD_REQUIRE(user.to_receive(1) == ENODEV);
        return 0;
    });
    EXPECT_EQ(const_cast<forked_process &>(child).wait().exit_code, 0);
}
