/* SPDX-License-Identifier: BSD-3-Clause */
/* Where what serves a card is placed. This machine may have one NUMA node. */
#include "util/placement.h"

#include "common/child.h"
#include "common/denial.h"
#include "common/host_memory.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

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
    const std::vector<unsigned> nodes = {0, 8};
    EXPECT_EQ(8u, util::choose_node(8, nodes));
    for (const std::optional<unsigned> card :
         {std::optional<unsigned>(1), std::optional<unsigned>()}) {
        EXPECT_EQ(std::nullopt, util::choose_node(card, nodes));
    }
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

} // namespace gaudi::test
