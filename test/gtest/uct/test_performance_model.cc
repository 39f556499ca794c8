/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCP takes from an interface: costs that it carries, compares or asserts,
 * and what operations there are. */
#include "uct/gaudi/base/ucx/transport_properties.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "gtest/uct/fixture.h"

#include <climits>
#include <optional>

extern "C" {
#include <config.h>
#include <ucp/core/ucp_types.h>
#include <uct/base/uct_iface.h>
}

namespace gaudi::test {

namespace {

constexpr uint64_t results =
    UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD |
    UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD | UCT_PERF_ATTR_FIELD_RECV_OVERHEAD |
    UCT_PERF_ATTR_FIELD_BANDWIDTH | UCT_PERF_ATTR_FIELD_LATENCY |
    UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS;

constexpr uct_ep_operation_t puts_and_gets[] = {
    UCT_EP_OP_PUT_SHORT, UCT_EP_OP_PUT_BCOPY, UCT_EP_OP_PUT_ZCOPY,
    UCT_EP_OP_GET_SHORT, UCT_EP_OP_GET_BCOPY, UCT_EP_OP_GET_ZCOPY};

class performance_model : public uct {
protected:
    static uct_perf_attr_t question(uct_ep_operation_t operation)
    {
        uct_perf_attr_t attr{};
        attr.field_mask    = UCT_PERF_ATTR_FIELD_OPERATION | results;
        attr.operation     = operation;
        attr.recv_overhead = 1;
        return attr;
    }

    uct_perf_attr_t estimate(uct_ep_operation_t operation) const
    {
        uct_perf_attr_t attr = question(operation);
        EXPECT_EQ(UCS_OK, uct_iface_estimate_perf(tl->iface, &attr));
        return attr;
    }

    double bandwidth(uct_ep_operation_t operation) const
    {
        return estimate(operation).bandwidth.shared;
    }
};

/* The one of gaudi_ipc. */
class ipc_performance_model : public performance_model {
protected:
    ipc_performance_model() { reopen({}); }
    ~ipc_performance_model() override { tl.reset(); }

    void reopen(const transport::settings &changes)
    {
        tl.reset();
        tl = std::make_unique<transport>(*ipc_md, changes);
    }

    const uct_iface_attr_t of_copy = tl->attr;
    std::optional<opened_domain> ipc_md{std::in_place, "gaudi_ipc"};
};

/* What gaudi_ipc answers to UCP about host memory, with a setting of
 * UCX_GAUDI_IPC_HOST. */
class host_to_host : public ipc_performance_model {
protected:
    void open(const char *setting)
    {
        tl.reset();
        ipc_md.reset();
        ipc_md.emplace("gaudi_ipc", variables{{"HOST", setting}});
        reopen({});
    }

    [[nodiscard]] ucs_status_t ask(ucs_memory_type_t remote) const
    {
        uct_perf_attr_t attr{};
        attr.field_mask = UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE |
                          UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE | results;
        attr.local_memory_type  = UCS_MEMORY_TYPE_HOST;
        attr.remote_memory_type = remote;
        return uct_iface_estimate_perf(tl->iface, &attr);
    }

    [[nodiscard]] bool registers_host() const
    {
        uct_md_attr_t attr;
        EXPECT_EQ(UCS_OK, uct_md_query(*ipc_md, &attr));
        EXPECT_TRUE(attr.cap.reg_mem_types & UCS_BIT(gaudi_type()));
        return (attr.cap.reg_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST)) != 0;
    }
};

} // namespace

/* Worker addresses of version 2 have eight bits for each. */
TEST_F(ipc_performance_model, short_worker_addresses_carry_it)
{
    const auto expect_carried = [](double carried, double value) {
        EXPECT_LE(carried, value);
        EXPECT_GE(carried, value * UCS_FP8_PRECISION);
    };
    constexpr double ns = 1e9;
    for (const uct_iface_attr_t &attr : {of_copy, tl->attr}) {
        const double latency  = attr.latency.c * ns;
        const double overhead = attr.overhead * ns;
        expect_carried(UCS_FP8_UNPACK(LATENCY, UCS_FP8_PACK(LATENCY, latency)),
                       latency);
        expect_carried(
            UCS_FP8_UNPACK(OVERHEAD, UCS_FP8_PACK(OVERHEAD, overhead)),
            overhead);
    }
}

TEST_F(host_to_host, is_moved_when_it_shall_be)
{
    open("y");
    EXPECT_EQ(UCS_OK, ask(UCS_MEMORY_TYPE_HOST));
    EXPECT_TRUE(registers_host());
}

TEST_F(host_to_host, is_left_to_others_as_the_release_allows)
{
    using base::host_exclusion;
    const bool can = base::excluding_host != host_exclusion::impossible;
    open("n");
    EXPECT_EQ(can ? UCS_ERR_UNSUPPORTED : UCS_OK, ask(UCS_MEMORY_TYPE_HOST));
    EXPECT_EQ(UCS_OK, ask(gaudi_type()));
    EXPECT_EQ(base::excluding_host != host_exclusion::by_registration,
              registers_host());
    EXPECT_GT(estimate(UCT_EP_OP_GET_ZCOPY).bandwidth.shared, 0);
}

TEST_F(performance_model, rma_has_no_receive_overhead)
{
    EXPECT_EQ(0, estimate(UCT_EP_OP_PUT_ZCOPY).recv_overhead);
}

TEST_F(performance_model, the_bandwidth_is_a_setting)
{
    reopen({{"BW", "25000MBs"}});
    const double before = bandwidth(UCT_EP_OP_PUT_ZCOPY);
    reopen({{"BW", "75000MBs"}});
    EXPECT_DOUBLE_EQ(before * 3, bandwidth(UCT_EP_OP_PUT_ZCOPY));
}

/* Any other would be a promise to UCP, such as that messages stay behind puts
 * (PUT_AM_ORDER of later releases). */
constexpr uint64_t promised =
    UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
    UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT |
    UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY |
    UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_CONNECT_TO_IFACE |
    UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;

TEST_F(performance_model, capabilities_match_the_limits)
{
    const auto &cap = tl->attr.cap;
    EXPECT_EQ(promised, cap.flags);
    EXPECT_EQ(65536u, cap.put.max_bcopy);
    EXPECT_EQ(SIZE_MAX, cap.put.max_zcopy);
    EXPECT_EQ(UINT_MAX, cap.put.max_short);
}

TEST_F(ipc_performance_model, messages_and_checks_of_peers_are_added)
{
    EXPECT_EQ(promised | UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY |
                  UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_EP_CHECK,
              tl->attr.cap.flags);
}

TEST_F(ipc_performance_model, puts_and_gets_share_the_link)
{
    for (const uct_ep_operation_t operation : puts_and_gets) {
        const uct_perf_attr_t attr = estimate(operation);
        EXPECT_EQ(0, attr.bandwidth.dedicated);
        EXPECT_LT(attr.bandwidth.shared, tl->attr.bandwidth.shared);
        EXPECT_EQ(0, attr.recv_overhead) << "UCP asserts it";
        EXPECT_EQ(SIZE_MAX, attr.max_inflight_eps);
    }
}

/* UCP compares latency and bandwidth of interfaces. */
TEST_F(ipc_performance_model, the_interface_as_a_whole)
{
    uct_perf_attr_t attr{};
    attr.field_mask = results;
    ASSERT_EQ(UCS_OK, uct_iface_estimate_perf(tl->iface, &attr));
    EXPECT_DOUBLE_EQ(tl->attr.bandwidth.shared, attr.bandwidth.shared);
    EXPECT_DOUBLE_EQ(tl->attr.latency.c, attr.latency.c);

    /* What is not asked for is left alone. */
    uct_perf_attr_t untouched{};
    untouched.bandwidth.shared = 7;
    untouched.latency.c        = 7;
    untouched.recv_overhead    = 7;
    ASSERT_EQ(UCS_OK, uct_iface_estimate_perf(tl->iface, &untouched));
    EXPECT_EQ(7, untouched.bandwidth.shared);
    EXPECT_EQ(7, untouched.latency.c);
    EXPECT_EQ(7, untouched.recv_overhead);
}

} // namespace gaudi::test
