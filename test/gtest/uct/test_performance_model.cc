/* What UCP is told about the cost of operations. */
#include "gtest/uct/fixture.h"

#include <climits>

extern "C" {
#include <config.h>
#include <uct/base/uct_iface.h>
}

namespace gaudi::test {

namespace {

class performance_model : public uct {
protected:
    uct_perf_attr_t estimate(uct_ep_operation_t operation) const
    {
        uct_perf_attr_t attr{};
        attr.field_mask =
            UCT_PERF_ATTR_FIELD_OPERATION |
            UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD |
            UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD |
            UCT_PERF_ATTR_FIELD_RECV_OVERHEAD | UCT_PERF_ATTR_FIELD_BANDWIDTH |
            UCT_PERF_ATTR_FIELD_LATENCY | UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS;
        attr.operation     = operation;
        attr.recv_overhead = 1;
        EXPECT_EQ(UCS_OK, uct_iface_estimate_perf(tl->iface, &attr));
        return attr;
    }

    double bandwidth(uct_ep_operation_t operation) const
    {
        return estimate(operation).bandwidth.shared;
    }
};

} // namespace

TEST_F(performance_model, each_kind_of_operation_has_its_bandwidth)
{
    EXPECT_NE(bandwidth(UCT_EP_OP_PUT_SHORT), bandwidth(UCT_EP_OP_GET_SHORT));
    EXPECT_GT(bandwidth(UCT_EP_OP_PUT_ZCOPY), bandwidth(UCT_EP_OP_PUT_BCOPY));
    EXPECT_GT(bandwidth(UCT_EP_OP_PUT_BCOPY), bandwidth(UCT_EP_OP_PUT_SHORT));
    EXPECT_GT(bandwidth(UCT_EP_OP_GET_ZCOPY), bandwidth(UCT_EP_OP_GET_BCOPY));
    EXPECT_GT(bandwidth(UCT_EP_OP_GET_BCOPY), bandwidth(UCT_EP_OP_GET_SHORT));
    EXPECT_EQ(0, bandwidth(UCT_EP_OP_AM_SHORT));
}

TEST_F(performance_model, rma_has_no_receive_overhead)
{
    EXPECT_EQ(0, estimate(UCT_EP_OP_PUT_ZCOPY).recv_overhead);
}

TEST_F(performance_model, the_bandwidth_is_a_setting)
{
    const double before = bandwidth(UCT_EP_OP_PUT_ZCOPY);
    reopen({{"BW", "50000MBs"}});
    EXPECT_DOUBLE_EQ(2 * before, bandwidth(UCT_EP_OP_PUT_ZCOPY));
}

TEST_F(performance_model, the_automatic_bandwidth_is_the_default)
{
    const double before = bandwidth(UCT_EP_OP_PUT_ZCOPY);
    reopen({{"BW", "auto"}});
    EXPECT_DOUBLE_EQ(before, bandwidth(UCT_EP_OP_PUT_ZCOPY));
}

TEST_F(performance_model, capabilities_match_the_limits)
{
    const auto &cap = tl->attr.cap;
    for (uint64_t flag :
         {UCT_IFACE_FLAG_PUT_SHORT, UCT_IFACE_FLAG_PUT_BCOPY,
          UCT_IFACE_FLAG_PUT_ZCOPY, UCT_IFACE_FLAG_GET_SHORT,
          UCT_IFACE_FLAG_GET_BCOPY, UCT_IFACE_FLAG_GET_ZCOPY,
          UCT_IFACE_FLAG_PENDING, UCT_IFACE_FLAG_CONNECT_TO_IFACE}) {
        EXPECT_TRUE(cap.flags & flag);
    }
    EXPECT_FALSE(cap.flags & UCT_IFACE_FLAG_AM_BCOPY);
    EXPECT_EQ(65536u, cap.put.max_bcopy);
    EXPECT_EQ(SIZE_MAX, cap.put.max_zcopy);
    EXPECT_EQ(UINT_MAX, cap.put.max_short);
}

} // namespace gaudi::test
