/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of address ranges, against a list that is searched from end to end.
 */
#include "util/interval_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace gaudi::base {

namespace {

using nodes = std::vector<std::unique_ptr<util::interval_node>>;

bool covers(const util::interval_node &node, uint64_t start, uint64_t end)
{
    return (node.start <= start) && (node.end >= end);
}

bool overlaps(const util::interval_node &node, uint64_t start, uint64_t end)
{
    return (node.start < end) && (node.end > start);
}

bool model_overlaps(const nodes &model, uint64_t start, uint64_t end)
{
    return std::any_of(model.begin(), model.end(), [&](const auto &node) {
        return overlaps(*node, start, end);
    });
}

bool model_covers(const nodes &model, uint64_t start, uint64_t end)
{
    return std::any_of(model.begin(), model.end(), [&](const auto &node) {
        return covers(*node, start, end);
    });
}

} // namespace

TEST(interval_tree, takes_an_empty_range_for_the_address_it_starts_at)
{
    util::interval_tree tree;
    util::interval_node first(100, 50);
    util::interval_node second(150, 50);
    tree.insert(first);
    tree.insert(second);
    EXPECT_EQ(&first, tree.find_cover(149, 150));
    EXPECT_EQ(&second, tree.find_cover(150, 150));
    EXPECT_EQ(nullptr, tree.find_cover(200, 200));
    EXPECT_EQ(nullptr, tree.find_cover(UINT64_MAX, UINT64_MAX));
}

TEST(interval_tree, a_range_that_wraps_around_is_not_covered)
{
    util::interval_tree tree;
    util::interval_node node(100, 50);
    tree.insert(node);
    EXPECT_EQ(nullptr, tree.find_cover(120, 10));
    EXPECT_EQ(nullptr, tree.find_cover(120, 119));
}

namespace {

/* Ranges of a test: where they start and how long they are. Dense ones overlap,
 * sparse ones seldom do, aligned ones share their ends. */
struct shape {
    const char *name;
    uint64_t origin;
    uint64_t span;
    uint64_t longest;
    uint64_t unit;
};

constexpr shape shapes[] = {
    {"dense", 0, 1000, 100, 1},
    {"sparse", 0, 1000000, 100, 1},
    {"aligned", 0x1001001800000000, 64, 4, 4096},
    {"nested", 0, 100, 1000, 1},
    {"at the end of the address space", UINT64_MAX - 3000, 1000, 1000, 1},
};

/* The same steps on a tree and on a list, every answer compared. */
void compare_with_model(const shape &ranges, unsigned seed)
{
    std::mt19937_64 random(seed);
    auto below = [&](uint64_t limit) { return random() % limit; };
    auto start = [&] {
        return ranges.origin + below(ranges.span) * ranges.unit;
    };
    auto length = [&] { return (below(ranges.longest) + 1) * ranges.unit; };
    util::interval_tree tree;
    nodes model;

    auto erase = [&](size_t index) {
        tree.erase(*model[index]);
        model.erase(model.begin() + static_cast<long>(index));
    };
    for (unsigned step = 0; step < 2000; ++step) {
        SCOPED_TRACE(step);
        switch (below(model.size() > 100 ? 6 : 4)) {
        case 0:
            model.push_back(
                std::make_unique<util::interval_node>(start(), length()));
            tree.insert(*model.back());
            break;
        case 1: {
            const uint64_t from = start();
            const uint64_t to   = from + length() - 1;
            const uint64_t last = std::max(to, from + 1); /* empty? */
            const util::interval_node *found = tree.find_cover(from, to);
            ASSERT_EQ(model_covers(model, from, last), found != nullptr);
            ASSERT_TRUE((found == nullptr) || covers(*found, from, last));
            break;
        }
        case 2: {
            const uint64_t from              = start();
            const uint64_t to                = from + length();
            const util::interval_node *found = tree.find_overlap(from, to);
            ASSERT_EQ(model_overlaps(model, from, to), found != nullptr);
            ASSERT_TRUE((found == nullptr) || overlaps(*found, from, to));
            break;
        }
        case 3: {
            /* What an unmapped range does. */
            const uint64_t from = start();
            const uint64_t to   = from + 1;
            while (util::interval_node *found = tree.find_overlap(from, to)) {
                tree.erase(*found);
                std::erase_if(model, [&](const auto &node) {
                    return node.get() == found;
                });
            }
            ASSERT_FALSE(model_overlaps(model, from, to));
            break;
        }
        default:
            erase(below(model.size()));
        }
        ASSERT_EQ(model.size(), tree.size());
    }
    std::sort(model.begin(), model.end(), [](const auto &a, const auto &b) {
        return std::pair(a->start, a.get()) < std::pair(b->start, b.get());
    });
    size_t next = 0;
    tree.for_each_overlap(0, UINT64_MAX, [&](const util::interval_node &node) {
        EXPECT_EQ(model.at(next++).get(), &node);
        return true;
    });
    EXPECT_EQ(model.size(), next);
    while (!model.empty()) {
        erase(below(model.size()));
    }
    EXPECT_EQ(0u, tree.size());
}

} // namespace

TEST(interval_tree, random_sequences_agree_with_the_model)
{
    for (const shape &ranges : shapes) {
        for (unsigned seed = 0; seed < 10; ++seed) {
            SCOPED_TRACE(ranges.name);
            SCOPED_TRACE(seed);
            compare_with_model(ranges, seed);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

} // namespace gaudi::base
