/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A table of address ranges that may overlap.
 *
 * Intrusive: nodes belong to the caller, so no operation allocates. A treap on
 * the start address, in which each node knows the largest end below it; every
 * operation takes logarithmic time, and finding what was found before mostly
 * constant time. Threads may search at the same time, not change.
 */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gaudi::util {

class interval_tree;

/** One range; derive from it. It must not move while it is in a tree. */
class interval_node {
public:
    interval_node() = default;
    interval_node(uint64_t first, uint64_t length)
        : start(first), end(first + length)
    {}

    uint64_t start = 0;
    uint64_t end   = 0; /**< first address behind the range */

private:
    friend class interval_tree;
    uint64_t max_end_     = 0;
    uint64_t priority_    = 0;
    interval_node *left_  = nullptr;
    interval_node *right_ = nullptr;
};

class interval_tree {
public:
    /** Add a node that is in no tree. */
    void insert(interval_node &node)
    {
        node.priority_ = next_priority();
        insert_below(root_, node);
        ++size_;
    }

    /** Remove a node that is in this tree. */
    void erase(interval_node &node)
    {
        for (auto &entry : recent_) {
            if (entry.load(std::memory_order_relaxed) == &node) {
                entry.store(nullptr, std::memory_order_relaxed);
            }
        }
        erase_below(root_, node);
        --size_;
    }

    /** Find a range that has an address of [start, end), which is not empty:
     *  one that starts before its end, and ends behind its start.
     *  @return nullptr when there is none. */
    [[nodiscard]] interval_node *find_overlap(uint64_t start,
                                              uint64_t end) const
    {
        interval_node *found = nullptr;
        for_each_overlap(start, end, [&](interval_node &node) {
            found = &node;
            return false;
        });
        return found;
    }

    /**
     * Find a range that covers [start, end); for an empty one, the range that
     * an address is in.
     *
     * @return nullptr when there is none.
     */
    [[nodiscard]] interval_node *find_cover(uint64_t start, uint64_t end) const
    {
        if ((end < start) || (start == UINT64_MAX)) {
            return nullptr; /* the range wraps around */
        }
        end                  = std::max(end, start + 1);
        auto &recent         = recent_[slot_of(start)];
        interval_node *known = recent.load(std::memory_order_relaxed);
        if ((known != nullptr) && (known->start <= start) &&
            (known->end >= end)) {
            return known;
        }
        /* What covers the range has an end behind its last byte, and a start
         * before what follows the first one. */
        interval_node *found = find_overlap(end - 1, start + 1);
        if (found != nullptr) {
            recent.store(found, std::memory_order_relaxed);
        }
        return found;
    }

    [[nodiscard]] size_t size() const { return size_; }

    /**
     * Call a function with every range that overlaps [start, end), in order of
     * their starts, until it returns false.
     */
    template <typename Function>
    void for_each_overlap(uint64_t start, uint64_t end,
                          Function &&function) const
    {
        visit_overlaps(root_, start, end, function);
    }

private:
    static constexpr unsigned recent_bits = 6;

    /* Where a node that covers an address is remembered, by its page. */
    static size_t slot_of(uint64_t address)
    {
        return ((address >> 12) * 0x9e3779b97f4a7c15) >> (64 - recent_bits);
    }

    static bool before(const interval_node &a, const interval_node &b)
    {
        return (a.start != b.start) ? (a.start < b.start) : (&a < &b);
    }

    static void update(interval_node *node)
    {
        node->max_end_ = node->end;
        for (const interval_node *child : {node->left_, node->right_}) {
            if (child != nullptr) {
                node->max_end_ = std::max(node->max_end_, child->max_end_);
            }
        }
    }

    /* Take a tree apart: what is before a node that is not in it, and what is
     * behind. */
    static void split(interval_node *root, const interval_node &node,
                      interval_node *&left, interval_node *&right)
    {
        if (root == nullptr) {
            left = right = nullptr;
            return;
        }
        if (before(*root, node)) {
            left = root;
            split(root->right_, node, root->right_, right);
        } else {
            right = root;
            split(root->left_, node, left, root->left_);
        }
        update(root);
    }

    static void insert_below(interval_node *&root, interval_node &node)
    {
        if ((root == nullptr) || (node.priority_ > root->priority_)) {
            split(root, node, node.left_, node.right_);
            root = &node;
        } else {
            insert_below(before(node, *root) ? root->left_ : root->right_,
                         node);
        }
        update(root);
    }

    static void erase_below(interval_node *&root, interval_node &node)
    {
        if (root == &node) {
            root = merge(node.left_, node.right_);
            return;
        }
        erase_below(before(node, *root) ? root->left_ : root->right_, node);
        update(root);
    }

    static interval_node *merge(interval_node *left, interval_node *right)
    {
        if ((left == nullptr) || (right == nullptr)) {
            return (left != nullptr) ? left : right;
        }
        if (left->priority_ > right->priority_) {
            left->right_ = merge(left->right_, right);
            update(left);
            return left;
        }
        right->left_ = merge(left, right->left_);
        update(right);
        return right;
    }

    template <typename Function>
    static bool visit_overlaps(interval_node *root, uint64_t start,
                               uint64_t end, Function &function)
    {
        if ((root == nullptr) || (root->max_end_ <= start)) {
            return true;
        }
        if (!visit_overlaps(root->left_, start, end, function)) {
            return false;
        }
        if (root->start >= end) {
            return true;
        }
        return ((root->end <= start) || function(*root)) &&
               visit_overlaps(root->right_, start, end, function);
    }

    uint64_t next_priority() /* xorshift64 */
    {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return random_;
    }

    /* Nodes that were found, none that has been erased. */
    mutable std::array<std::atomic<interval_node *>, size_t{1} << recent_bits>
        recent_{};
    interval_node *root_ = nullptr;
    size_t size_         = 0;
    uint64_t random_     = 0x9e3779b97f4a7c15;
};

} // namespace gaudi::util
