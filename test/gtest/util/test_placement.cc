/* SPDX-License-Identifier: BSD-3-Clause */
/* Where what serves a card is placed. This machine may have one NUMA node. */
#include "util/placement.h"

#include "common/child.h"
#include "common/denial.h"
#include "gtest/shim/fixture.h"

#include <algorithm>
#include <thread>

#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::test {

using util::choose_cpus;
using util::choose_node;

namespace {

cpu_set_t cpus(std::initializer_list<unsigned> numbers)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned number : numbers) {
        CPU_SET(number, &set);
    }
    return set;
}

bool same(const cpu_set_t &first, const cpu_set_t &second)
{
    return CPU_EQUAL(&first, &second) != 0;
}

cpu_set_t own_cpus()
{
    cpu_set_t set;
    EXPECT_EQ(0, sched_getaffinity(0, sizeof(set), &set));
    return set;
}

constexpr unsigned no_such_node = 1000;

} // namespace

TEST(placement, is_on_the_node_of_the_card_where_there_is_a_choice)
{
    const std::vector<unsigned> two = {0, 1};
    EXPECT_EQ(0u, util::choose_node(0, two));
    EXPECT_EQ(1u, util::choose_node(1, two));
    EXPECT_EQ(std::nullopt, util::choose_node(2, two));
    EXPECT_EQ(std::nullopt, util::choose_node(std::nullopt, two));
    const std::vector<unsigned> gap = {0, 8};
    EXPECT_EQ(8u, util::choose_node(8, gap));
    EXPECT_EQ(std::nullopt, util::choose_node(1, gap));
}

TEST(placement, is_left_to_the_kernel_on_a_machine_of_one_node)
{
    EXPECT_EQ(std::nullopt, util::choose_node(0, std::vector<unsigned>{0}));
    EXPECT_EQ(std::nullopt, util::choose_node(0, {}));
}

TEST(placement, of_a_thread_is_within_the_cpus_that_it_had)
{
    EXPECT_TRUE(same(cpus({2, 3}),
                     util::choose_cpus(cpus({1, 2, 3}), cpus({2, 3, 4, 5}))));
    EXPECT_TRUE(same(cpus({1}), util::choose_cpus(cpus({1}), cpus({2, 3}))))
        << "confined to another node";
    EXPECT_TRUE(same(cpus({1}), util::choose_cpus(cpus({1}), cpus({}))));
}

TEST(placement, knows_the_nodes_of_this_machine)
{
    const auto &nodes = util::memory_nodes();
    EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.end()));
    for (unsigned node : nodes) {
        EXPECT_EQ(
            0, access(("/sys/devices/system/node/node" + std::to_string(node))
                          .c_str(),
                      F_OK))
            << node;
    }
}

/* As Docker does for who has no CAP_SYS_NICE. */
GAUDI_CHILD(may_not_ask_for_its_nodes)
{
    GAUDI_CHILD_REQUIRE(deny_system_call(SYS_get_mempolicy) == 0);
    EXPECT_TRUE(util::memory_nodes().empty());
    return 0;
}

TEST(placement, is_silently_left_to_the_kernel_where_a_container_forbids_it)
{
    const child_result child = run_child("may_not_ask_for_its_nodes");
    EXPECT_EQ(0, child.exit_code);
    EXPECT_EQ("", child.error);
}

TEST(placement, on_a_node_that_is_not_there_does_no_harm)
{
    guarded_buffer memory(1 << 20);
    util::place_memory(memory.data(), memory.size(), no_such_node);
    util::place_memory(memory.data(), memory.size(), std::nullopt);
    std::fill_n(memory.data(), memory.size(), 'x');

    const cpu_set_t before = own_cpus();
    std::thread([&] {
        util::place_thread(no_such_node);
        EXPECT_TRUE(same(before, own_cpus()));
    }).join();
}

/* On a machine of one node this sees that nothing happens. */
TEST(placement, of_a_thread_ends_with_an_unknown_node)
{
    const cpu_set_t before = own_cpus();
    std::thread([&] {
        for (unsigned node : util::memory_nodes()) {
            util::place_thread(node);
            const cpu_set_t placed = own_cpus();
            EXPECT_TRUE(same(placed, util::choose_cpus(before, placed)));
        }
        util::place_thread(std::nullopt);
        EXPECT_TRUE(same(before, own_cpus()));
    }).join();
}

using pinned_placement = shim_test;

TEST_F(pinned_placement, of_a_buffer_is_the_node_of_its_card)
{
    std::vector<std::optional<unsigned>> nodes = {std::nullopt, no_such_node};
    for (unsigned node : util::memory_nodes()) {
        nodes.emplace_back(node);
    }
    for (const auto &node : nodes) {
        dev->set_numa_node(node);
        EXPECT_EQ(node, dev->numa_node());
        shim::pinned_buffer buffer;
        ASSERT_EQ(0, shim::pinned_buffer::create(*dev, 100000, buffer));
        EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                                [](char byte) { return byte == 0; }));
        device_memory target(*dev, device_page());
        const auto queue = make_queue(shim::dma_direction::host_to_device);
        EXPECT_EQ(0,
                  copy(*queue, target.va(), buffer.address(), buffer.size()));
    }
}

} // namespace gaudi::test
