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

TEST(transport_list, says_what_ucx_may_use)
{
    const struct {
        const char *transports;
        bool reach_host, gaudi, others, copy;
    } rows[] = {
        {"all", true, true, true, true},
        {"", false, false, false, false},
        {"sm", true, false, true, false},
        {"tcp", false, false, true, false},
        {"gaudi", false, true, false, true},
        {"^gaudi", true, false, true, false},
        {"^tcp", true, true, true, true},
        {"^gaudi_ipc", true, true, true, true},
        {"^gaudi_cpy", true, true, true, false},
        {"gaudi_cpy,gaudi_ipc", false, true, false, true},
        {"self,gaudi_ipc,gaudi_cpy", false, true, false, true},
        {"gaudi_cpy,gaudi_ipc,sm", true, true, true, true},
        {"\\cma,gaudi_ipc", true, true, true, false},
        {"gaudi_ipc,rc,tcp", true, true, true, false},
        {"gaudi_cpy,\\gaudi_ipc,tcp,self", false, true, true, true},
        {"^tcp,\\gaudi_cpy", true, true, true, false},
        {"gaudi_ipc,rdmacm", false, true, true, false},
    };
    for (const auto &row : rows) {
        const allowed_transports allowed = allowed_by(row.transports);
        EXPECT_EQ(row.reach_host, allowed.reach_host) << row.transports;
        EXPECT_EQ(row.gaudi, allowed.gaudi) << row.transports;
        EXPECT_EQ(row.others, allowed.others) << row.transports;
        EXPECT_EQ(row.copy, allowed.copy) << row.transports;
    }
    unsetenv("UCX_TLS");
    const allowed_transports all = find_allowed_transports();
    EXPECT_TRUE(all.reach_host && all.gaudi && all.others && all.copy);
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
