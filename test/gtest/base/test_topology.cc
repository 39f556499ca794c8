/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/topology.h"

#include <gtest/gtest.h>

#include <optional>

namespace gaudi::base {

namespace {

constexpr ucs_sys_dev_distance_t one_switch = {.latency   = 0,
                                               .bandwidth = 1e300};
constexpr ucs_sys_dev_distance_t one_bridge = {.latency   = 300e-9,
                                               .bandwidth = 3.5e9};
constexpr ucs_sys_dev_distance_t machine    = {.latency   = 500e-9,
                                               .bandwidth = 2e8};

bool same(const ucs_sys_dev_distance_t &first,
          const ucs_sys_dev_distance_t &second)
{
    return (first.latency == second.latency) &&
           (first.bandwidth == second.bandwidth);
}

} // namespace

/* By the tree of devices where sysfs shows it, else by nodes. */
TEST(topology, rates_a_distance_by_what_is_known)
{
    const ucs_sys_dev_distance_t near = ucs_topo_default_distance;
    constexpr std::nullopt_t unknown  = std::nullopt;
    const struct {
        std::optional<ucs_sys_dev_distance_t> by_tree;
        std::optional<unsigned> first, second;
        ucs_sys_dev_distance_t expected;
    } rows[] = {{unknown, 1, 1, near},
                {unknown, 0, 1, machine},
                {unknown, unknown, 1, near},
                {unknown, 0, unknown, near},
                {machine, unknown, unknown, machine},
                {one_switch, 0, 1, one_switch},
                {one_bridge, 0, 0, one_bridge},
                {machine, 0, 1, machine}};
    for (const auto &row : rows) {
        EXPECT_TRUE(same(row.expected, rate_distance(row.by_tree, row.first,
                                                     row.second, machine)));
    }
    /* Root complexes of one node are nearer than two nodes. */
    const auto rated = rate_distance(machine, 1, 1, machine);
    EXPECT_LT(rated.latency, machine.latency);
    EXPECT_GT(rated.bandwidth, machine.bandwidth);
}

} // namespace gaudi::base
