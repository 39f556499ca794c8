/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/topology.h"

#include <gmock/gmock.h>

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

TEST(topology, a_card_that_sysfs_hides_is_rated_by_its_node)
{
    EXPECT_TRUE(same(ucs_topo_default_distance,
                     rate_distance(std::nullopt, 1, 1, machine)));
    EXPECT_TRUE(same(machine, rate_distance(std::nullopt, 0, 1, machine)));
}

TEST(topology, what_is_not_known_is_near)
{
    EXPECT_TRUE(same(ucs_topo_default_distance,
                     rate_distance(std::nullopt, std::nullopt, 1, machine)));
    EXPECT_TRUE(same(ucs_topo_default_distance,
                     rate_distance(std::nullopt, 0, std::nullopt, machine)));
    EXPECT_TRUE(same(
        machine, rate_distance(machine, std::nullopt, std::nullopt, machine)));
}

TEST(topology, a_place_in_the_tree_of_devices_counts_first)
{
    for (const auto &by_tree : {one_switch, one_bridge}) {
        EXPECT_TRUE(same(by_tree, rate_distance(by_tree, 0, 0, machine)));
        EXPECT_TRUE(same(by_tree, rate_distance(by_tree, 0, 1, machine)));
    }
    EXPECT_TRUE(same(machine, rate_distance(machine, 0, 1, machine)));
}

TEST(topology, root_complexes_of_one_node_are_nearer_than_two_nodes)
{
    const auto rated = rate_distance(machine, 1, 1, machine);
    EXPECT_LT(rated.latency, machine.latency);
    EXPECT_GT(rated.bandwidth, machine.bandwidth);
    EXPECT_GT(rated.latency, one_switch.latency);
}

} // namespace gaudi::base
