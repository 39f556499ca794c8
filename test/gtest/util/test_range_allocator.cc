/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/range_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace gaudi::test {

namespace {

using util::range_allocator;

/* What a util::range_allocator should do, the slow way: unit by unit. */
class model {
public:
    void add(uint64_t start, uint64_t size)
    {
        ranges_[start] = size;
        release(start, size);
    }

    void remove(uint64_t start)
    {
        take(start, ranges_[start]);
        ranges_.erase(start);
    }

    bool is_free(uint64_t start, uint64_t size) const
    {
        return std::distance(free_.lower_bound(start),
                             free_.lower_bound(start + size)) ==
               static_cast<long>(size);
    }

    void take(uint64_t start, uint64_t size)
    {
        free_.erase(free_.lower_bound(start), free_.lower_bound(start + size));
    }

    void release(uint64_t start, uint64_t size)
    {
        for (uint64_t unit = start; unit < start + size; ++unit) {
            free_.insert(unit);
        }
    }

    /* The range of an address, by its start. */
    uint64_t range_of(uint64_t address) const
    {
        return std::prev(ranges_.upper_bound(address))->first;
    }

    /* Sizes of the free pieces. */
    std::multiset<uint64_t> pieces() const
    {
        std::multiset<uint64_t> sizes;
        uint64_t length = 0;
        uint64_t next   = 0;
        for (const uint64_t unit : free_) {
            if ((length > 0) && ((unit != next) || ranges_.contains(unit))) {
                sizes.insert(length);
                length = 0;
            }
            ++length;
            next = unit + 1;
        }
        if (length > 0) {
            sizes.insert(length);
        }
        return sizes;
    }

    uint64_t free_units() const { return free_.size(); }
    const std::map<uint64_t, uint64_t> &ranges() const { return ranges_; }

private:
    std::map<uint64_t, uint64_t> ranges_;
    std::set<uint64_t> free_;
};

} // namespace

TEST(range_allocator, does_what_a_simple_model_does)
{
    for (unsigned seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&random](uint64_t limit) {
            return std::uniform_int_distribution<uint64_t>(0,
                                                           limit - 1)(random);
        };
        util::range_allocator allocator;
        model expected;
        std::vector<std::pair<uint64_t, uint64_t>> taken;
        uint64_t next_range = 1;

        for (unsigned step = 0; step < 2000; ++step) {
            const uint64_t action = below(100);
            if (action < 3) {
                const uint64_t size = 1 + below(64);
                allocator.add(next_range, size);
                expected.add(next_range, size);
                next_range += size + below(2);
            } else if ((action < 4) && !expected.ranges().empty()) {
                auto range = expected.ranges().begin();
                std::advance(range, below(expected.ranges().size()));
                const uint64_t start = range->first;
                std::erase_if(taken, [&](const auto &part) {
                    return expected.range_of(part.first) == start;
                });
                allocator.remove(start);
                expected.remove(start);
            } else if (action < 60) {
                const uint64_t size  = 1 + below(16);
                const auto pieces    = expected.pieces();
                const auto best      = pieces.lower_bound(size);
                const uint64_t start = allocator.allocate(size);
                if (best == pieces.end()) {
                    ASSERT_EQ(0u, start);
                    continue;
                }
                ASSERT_NE(0u, start);
                ASSERT_TRUE(expected.is_free(start, size));
                ASSERT_EQ(expected.range_of(start),
                          expected.range_of(start + size - 1));
                expected.take(start, size);
                taken.emplace_back(start, size);
            } else if (!taken.empty()) {
                const size_t which       = below(taken.size());
                const auto [start, size] = taken[which];
                taken.erase(taken.begin() + static_cast<long>(which));
                allocator.release(start, size);
                expected.release(start, size);
            }
            ASSERT_EQ(expected.free_units(), allocator.free_bytes());
            ASSERT_EQ(expected.pieces().size(), allocator.free_pieces());
        }
    }
}

} // namespace gaudi::test
