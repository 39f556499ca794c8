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

uint64_t number(const std::string &card, const std::string &name)
{
    const ucs_stats_node_t *node = nodes.at(card);
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

TEST_F(statistics, have_a_node_for_each_card_below_the_interface)
{
    {
        copy_counts counts;
        card_counts &first = counts.of("gaudi0");
        first.add(copy_kind::on_card, 1); /* nobody can see that */
        EXPECT_TRUE(nodes.empty());
        counts.show_in(&iface.super);
        EXPECT_EQ(&own, parent_of_last);
        card_counts &second = counts.of("gaudi1");
        EXPECT_EQ(2u, nodes.size());
        EXPECT_EQ(&second, &counts.of("gaudi1"));
        EXPECT_EQ(2u, nodes.size());
    }
    EXPECT_TRUE(nodes.empty()) << "they go with the engine";
}

TEST_F(statistics, have_bytes_and_jobs_of_each_direction)
{
    const std::pair<copy_kind, const char *> kinds[] = {
        {copy_kind::host_to_device, "host_to_device"},
        {copy_kind::device_to_host, "device_to_host"},
        {copy_kind::on_card, "on_card"},
        {copy_kind::card_to_card_out, "card_to_card_out"},
        {copy_kind::card_to_card_in, "card_to_card_in"}};
    copy_counts counts;
    counts.show_in(&iface.super);
    card_counts &card = counts.of("gaudi0");
    EXPECT_STREQ("gaudi_card", nodes.at("-gaudi0")->cls->name);
    EXPECT_EQ(2 * std::size(kinds), nodes.at("-gaudi0")->cls->num_counters);
    for (uint64_t i = 0; i < std::size(kinds); ++i) {
        card.add(kinds[i].first, 1000 * (i + 1));
        card.add(kinds[i].first, 1);
    }
    for (uint64_t i = 0; i < std::size(kinds); ++i) {
        const std::string name = kinds[i].second;
        EXPECT_EQ(1000 * (i + 1) + 1, number("-gaudi0", name + "_bytes"));
        EXPECT_EQ(2u, number("-gaudi0", name + "_jobs"));
    }
}

TEST_F(statistics, have_a_node_for_each_port_in_use)
{
    copy_counts counts;
    counts.show_in(&iface.super);
    shim::port_offer offer;
    offer.count        = 2;
    offer.ends[0].port = 3;
    offer.ends[1].port = 10;
    counts.add("gaudi0", offer);
    shim::port_watcher &ports = counts.ports_of("gaudi0");
    ports.note_end(3, 4096, 0);
    ports.note_end(3, 100, 0);
    ports.note_end(10, 8, -5);
    EXPECT_EQ(4196u, number("-gaudi0/port3", "bytes"));
    EXPECT_EQ(2u, number("-gaudi0/port3", "messages"));
    EXPECT_EQ(0u, number("-gaudi0/port3", "errors"));
    EXPECT_EQ(0u, number("-gaudi0/port10", "bytes"));
    EXPECT_EQ(1u, number("-gaudi0/port10", "errors"));
}

} // namespace

} // namespace gaudi::base
