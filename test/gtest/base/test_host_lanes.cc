#include "uct/gaudi/base/ucx/host_lanes.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gaudi::base {

namespace {

bool others_reach_host_with(const char *transports)
{
    setenv("UCX_TLS", transports, 1);
    const bool any = others_reach_host();
    unsetenv("UCX_TLS");
    return any;
}

uct_perf_attr_t question(uint64_t fields, ucs_memory_type_t local,
                         ucs_memory_type_t remote)
{
    uct_perf_attr_t attr{};
    attr.field_mask         = fields;
    attr.local_memory_type  = local;
    attr.remote_memory_type = remote;
    return attr;
}

} // namespace

TEST(host_lanes, are_those_of_ucx_where_it_may_use_them)
{
    unsetenv("UCX_TLS");
    EXPECT_TRUE(others_reach_host());
    for (const char *transports :
         {"all", "sm", "gaudi_cpy,gaudi_ipc,sm", "\\cma,gaudi_ipc",
          "^gaudi_ipc", "gaudi_ipc,rc,tcp"}) {
        EXPECT_TRUE(others_reach_host_with(transports)) << transports;
    }
    for (const char *transports :
         {"", "gaudi_cpy,gaudi_ipc", "gaudi_cpy,\\gaudi_ipc,tcp,self",
          "gaudi_gdr,gaudi_ipc"}) {
        EXPECT_FALSE(others_reach_host_with(transports)) << transports;
    }
}

TEST(host_lanes, are_asked_for_by_both_memory_types)
{
    constexpr auto host       = UCS_MEMORY_TYPE_HOST;
    constexpr auto managed    = UCS_MEMORY_TYPE_CUDA_MANAGED;
    constexpr uint64_t local  = UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE;
    constexpr uint64_t remote = UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE;
    EXPECT_TRUE(is_host_to_host(question(local | remote, host, host)));
    EXPECT_FALSE(is_host_to_host(question(local, host, host)));
    EXPECT_FALSE(is_host_to_host(question(remote, host, host)));
    EXPECT_FALSE(is_host_to_host(question(local | remote, managed, host)));
    EXPECT_FALSE(is_host_to_host(question(local | remote, host, managed)));
}

} // namespace gaudi::base
