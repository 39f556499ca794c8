/* SPDX-License-Identifier: BSD-3-Clause */
/* The module's part of UCX's statistics, compiled as for a UCX that has them:
 * the one that runs may not. What such a UCX has is here instead. */
#include "uct/gaudi/base/transfer/counts.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdlib>
#include <map>
#include <string>

namespace {

/* Nodes that were made and are there, by name. */
std::map<std::string, ucs_stats_node_t *> nodes;
ucs_stats_node_t *parent_of_last = nullptr;

} // namespace

extern "C" {

/* From 1.21 on this says where they go: to all there are. */
extern volatile unsigned ucs_stats_context_flags;
volatile unsigned ucs_stats_context_flags = ~0u;

ucs_status_t ucs_stats_node_alloc(ucs_stats_node_t **p_node,
                                  ucs_stats_class_t *cls,
                                  ucs_stats_node_t *parent, const char *name,
                                  ...)
{
    char text[64];
    va_list arguments;
    va_start(arguments, name);
    std::vsnprintf(text, sizeof(text), name, arguments);
    va_end(arguments);

    auto *made = static_cast<ucs_stats_node_t *>(
        std::calloc(1, sizeof(ucs_stats_node_t) +
                           cls->num_counters * sizeof(ucs_stats_counter_t)));
    made->cls      = cls;
    parent_of_last = parent;
    nodes[text]    = made;
    *p_node        = made;
    return UCS_OK;
}

void ucs_stats_node_free(ucs_stats_node_t *node)
{
    std::erase_if(nodes, [=](const auto &each) { return each.second == node; });
    std::free(node);
}
}

namespace gaudi::base {

namespace {

uint64_t number(const std::string &path, const std::string &name)
{
    const ucs_stats_node_t *node = nodes.at(path);
    for (unsigned i = 0; i < node->cls->num_counters; ++i) {
        if (name == node->cls->counter_names[i]) {
            return node->counters[i];
        }
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

class statistics : public ::testing::Test {
protected:
    statistics() { iface.stats = &own; }

    uct_base_iface_t iface{};
    ucs_stats_node_t own{};
};

TEST_F(statistics, have_a_node_below_the_interface)
{
    {
        copy_counts counts;
        counts.add(mover::card, 1); /* before it is shown */
        EXPECT_TRUE(nodes.empty());
        counts.show_in(&iface.super);
        EXPECT_EQ(&own, parent_of_last);
        ASSERT_EQ(1u, nodes.size());
        EXPECT_STREQ("gaudi_copies", nodes.at("-all")->cls->name);
    }
    EXPECT_TRUE(nodes.empty()) << "it goes with the engine";
}

TEST_F(statistics, have_bytes_and_operations_of_each_mover)
{
    const std::pair<mover, const char *> movers[] = {{mover::card, "card"},
                                                     {mover::ports, "ports"},
                                                     {mover::host, "host"},
                                                     {mover::cpu, "cpu"}};
    copy_counts counts;
    counts.show_in(&iface.super);
    EXPECT_EQ(2 * std::size(movers), nodes.at("-all")->cls->num_counters);
    for (uint64_t i = 0; i < std::size(movers); ++i) {
        counts.add(movers[i].first, 1000 * (i + 1));
        counts.add(movers[i].first, 1);
    }
    for (uint64_t i = 0; i < std::size(movers); ++i) {
        const std::string name = movers[i].second;
        EXPECT_EQ(1000 * (i + 1) + 1, number("-all", name + "_bytes"));
        EXPECT_EQ(2u, number("-all", name + "_operations"));
    }
}

} // namespace

} // namespace gaudi::base
