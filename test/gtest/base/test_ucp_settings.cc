/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/transport_properties.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gaudi::base {

namespace {

allowed_transports allowed_by(const char *transports)
{
    setenv("UCX_TLS", transports, 1);
    const allowed_transports allowed = find_allowed_transports();
    unsetenv("UCX_TLS");
    return allowed;
}

bool is_host_to_host(uint64_t fields, ucs_memory_type_t local,
                     ucs_memory_type_t remote)
{
    uct_perf_attr_t attr{};
    attr.field_mask         = fields;
    attr.local_memory_type  = local;
    attr.remote_memory_type = remote;
    return question_of(attr).is_host_to_host();
}

} // namespace

TEST(host_lanes, are_those_of_ucx_where_it_may_use_them)
{
    unsetenv("UCX_TLS");
    EXPECT_TRUE(find_allowed_transports().reach_host);
    for (const char *transports :
         {"all", "sm", "gaudi_cpy,gaudi_ipc,sm", "\\cma,gaudi_ipc",
          "^gaudi_ipc", "gaudi_ipc,rc,tcp"}) {
        EXPECT_TRUE(allowed_by(transports).reach_host) << transports;
    }
    for (const char *transports :
         {"", "gaudi_cpy,gaudi_ipc", "gaudi_cpy,\\gaudi_ipc,tcp,self",
          "gaudi_gdr,gaudi_ipc", "gaudi_ipc,tcp,cuda_copy,cuda,rocm_copy",
          "gaudi_ipc,rdmacm"}) {
        EXPECT_FALSE(allowed_by(transports).reach_host) << transports;
    }
}

TEST(host_lanes, tell_whether_gaudi_is_meant_at_all)
{
    unsetenv("UCX_TLS");
    EXPECT_TRUE(find_allowed_transports().gaudi);
    for (const char *transports :
         {"all", "gaudi", "tcp,gaudi_ipc", "gaudi_cpy", "^gaudi_cpy", "^tcp"}) {
        EXPECT_TRUE(allowed_by(transports).gaudi) << transports;
    }
    for (const char *transports : {"tcp", "", "^gaudi", "self,sm"}) {
        EXPECT_FALSE(allowed_by(transports).gaudi) << transports;
    }
}

TEST(host_lanes, tell_whether_there_are_other_ways)
{
    unsetenv("UCX_TLS");
    EXPECT_TRUE(find_allowed_transports().others);
    for (const char *transports :
         {"all", "gaudi,tcp", "gaudi_cpy,\\gaudi_ipc,sm", "^gaudi_cpy"}) {
        EXPECT_TRUE(allowed_by(transports).others) << transports;
    }
    for (const char *transports :
         {"", "gaudi", "gaudi_cpy,gaudi_ipc", "self,gaudi_ipc,gaudi_cpy"}) {
        EXPECT_FALSE(allowed_by(transports).others) << transports;
    }
}

TEST(host_lanes, need_gaudi_copy_beside_them)
{
    unsetenv("UCX_TLS");
    EXPECT_TRUE(find_allowed_transports().copy);
    for (const char *transports :
         {"all", "sm,gaudi_cpy", "\\gaudi_cpy,sm", "gaudi", "^gaudi_ipc,tcp"}) {
        EXPECT_TRUE(allowed_by(transports).copy) << transports;
    }
    for (const char *transports :
         {"", "sm,gaudi_ipc", "^gaudi_cpy", "^tcp,\\gaudi_cpy"}) {
        EXPECT_FALSE(allowed_by(transports).copy) << transports;
    }
}

TEST(host_lanes, are_asked_for_by_both_memory_types)
{
    constexpr auto host       = UCS_MEMORY_TYPE_HOST;
    constexpr auto managed    = UCS_MEMORY_TYPE_CUDA_MANAGED;
    constexpr uint64_t local  = UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE;
    constexpr uint64_t remote = UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE;
    EXPECT_TRUE(is_host_to_host(local | remote, host, host));
    EXPECT_FALSE(is_host_to_host(local, host, host));
    EXPECT_FALSE(is_host_to_host(remote, host, host));
    EXPECT_FALSE(is_host_to_host(local | remote, managed, host));
    EXPECT_FALSE(is_host_to_host(local | remote, host, managed));
}

} // namespace gaudi::base
