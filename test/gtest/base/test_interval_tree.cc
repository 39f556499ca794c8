/* The table of address ranges, against a list that is searched from end to end.
 */
#include "uct/gaudi/base/interval_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace gaudi::base {

namespace {

using nodes = std::vector<std::unique_ptr<interval_node>>;

bool covers(const interval_node &node, uint64_t start, uint64_t end)
{
    return (node.start <= start) && (node.end >= end);
}

bool model_covers(const nodes &model, uint64_t start, uint64_t end)
{
    return std::any_of(model.begin(), model.end(), [&](const auto &node) {
        return covers(*node, start, end);
    });
}

} // namespace

TEST(interval_tree, is_empty_at_first)
{
    interval_tree tree;
    EXPECT_TRUE(tree.empty());
    EXPECT_EQ(nullptr, tree.find_cover(0, 0));
}

TEST(interval_tree, finds_a_range_by_any_part_of_it)
{
    interval_tree tree;
    interval_node node(100, 50);
    tree.insert(node);
    EXPECT_EQ(&node, tree.find_cover(100, 150));
    EXPECT_EQ(&node, tree.find_cover(149, 150));
    EXPECT_EQ(&node, tree.find_cover(120, 120));
    EXPECT_EQ(nullptr, tree.find_cover(99, 101));
    EXPECT_EQ(nullptr, tree.find_cover(149, 151));
    EXPECT_EQ(nullptr, tree.find_cover(200, 201));
    tree.erase(node);
    EXPECT_EQ(nullptr, tree.find_cover(100, 101));
}

TEST(interval_tree, a_long_range_is_found_behind_many_short_ones)
{
    interval_tree tree;
    interval_node around(0, 1000000);
    std::vector<interval_node> inside(1000);
    tree.insert(around);
    for (size_t i = 0; i < inside.size(); ++i) {
        inside[i].start = 10 * i;
        inside[i].end   = 10 * i + 5;
        tree.insert(inside[i]);
    }
    EXPECT_EQ(&around, tree.find_cover(9997, 9999));
    EXPECT_EQ(&around, tree.find_cover(5, 999999));
    for (auto &node : inside) {
        tree.erase(node);
    }
    tree.erase(around);
    EXPECT_TRUE(tree.empty());
}

TEST(interval_tree, equal_ranges_are_kept_apart)
{
    interval_tree tree;
    interval_node first(10, 10);
    interval_node second(10, 10);
    tree.insert(first);
    tree.insert(second);
    tree.erase(first);
    EXPECT_EQ(&second, tree.find_cover(10, 20));
    tree.erase(second);
    EXPECT_EQ(nullptr, tree.find_cover(10, 20));
}

TEST(interval_tree, nodes_are_visited_in_order)
{
    interval_tree tree;
    std::vector<interval_node> members(100);
    for (size_t i = 0; i < members.size(); ++i) {
        members[i].start = (i * 37) % 100;
        members[i].end   = members[i].start + 1;
        tree.insert(members[i]);
    }
    uint64_t next = 0;
    tree.for_each(
        [&](const interval_node &node) { EXPECT_EQ(next++, node.start); });
    EXPECT_EQ(100u, next);
}

TEST(interval_tree, random_sequences_agree_with_the_model)
{
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937_64 random(seed);
        auto below = [&](uint64_t limit) { return random() % limit; };
        interval_tree tree;
        nodes model;

        for (unsigned step = 0; step < 3000; ++step) {
            const uint64_t start = below(1000);
            switch (below(model.size() > 100 ? 3 : 2)) {
            case 0:
                model.push_back(
                    std::make_unique<interval_node>(start, below(100) + 1));
                tree.insert(*model.back());
                break;
            case 1: {
                const uint64_t end         = start + below(60);
                const interval_node *found = tree.find_cover(start, end);
                ASSERT_EQ(model_covers(model, start, end), found != nullptr)
                    << "seed " << seed << " step " << step;
                if (found != nullptr) {
                    ASSERT_TRUE(covers(*found, start, end));
                }
                break;
            }
            case 2: {
                auto victim =
                    model.begin() + static_cast<long>(below(model.size()));
                tree.erase(**victim);
                model.erase(victim);
                break;
            }
            }
            ASSERT_EQ(model.size(), tree.size());
        }
    }
}

} // namespace gaudi::base
