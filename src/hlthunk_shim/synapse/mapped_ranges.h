/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the card may be told to copy from or to: ranges that are mapped for it.
 *
 * Several registrations may lie in one range. Any thread. Ranges do not
 * overlap.
 */
#pragma once

#include "util/interval_tree.h"
#include "util/locks.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace gaudi::shim {

class mapped_ranges {
public:
    mapped_ranges() = default;
    ~mapped_ranges()
    {
        while (range *first = take_any()) {
            delete first;
        }
    }
    mapped_ranges(const mapped_ranges &)            = delete;
    mapped_ranges &operator=(const mapped_ranges &) = delete;

    [[nodiscard]] bool covers(uint64_t start, uint64_t end) const
    {
        const std::shared_lock<util::rw_spinlock> guard(lock_);
        return tree_.find_cover(start, end) != nullptr;
    }

    [[nodiscard]] bool overlaps(uint64_t start, uint64_t end) const
    {
        const std::shared_lock<util::rw_spinlock> guard(lock_);
        return tree_.find_overlap(start, end) != nullptr;
    }

    /** Add a range with one user. */
    void add(uint64_t start, uint64_t size)
    {
        auto *added = new range(start, size);
        const std::lock_guard<util::rw_spinlock> guard(lock_);
        tree_.insert(*added);
    }

    /** One user more, of the range that covers another.
     *  @return false when none does. */
    [[nodiscard]] bool join(uint64_t start, uint64_t end)
    {
        const std::lock_guard<util::rw_spinlock> guard(lock_);
        auto *found = static_cast<range *>(tree_.find_cover(start, end));
        if (found != nullptr) {
            ++found->users;
        }
        return found != nullptr;
    }

    /** One user less of the range that an address is in.
     *  @return Where it starts, when that was the last user: it is taken out;
     *          0 when there are others, or no such range. */
    [[nodiscard]] uint64_t leave(uint64_t address)
    {
        std::unique_ptr<range> last;
        {
            const std::lock_guard<util::rw_spinlock> guard(lock_);
            auto *found =
                static_cast<range *>(tree_.find_cover(address, address + 1));
            if ((found == nullptr) || (--found->users > 0)) {
                return 0;
            }
            tree_.erase(*found);
            last.reset(found);
        }
        return last->start;
    }

private:
    struct range : util::interval_node {
        using interval_node::interval_node;
        unsigned users = 1;
    };

    range *take_any()
    {
        auto *found = static_cast<range *>(tree_.find_overlap(0, UINT64_MAX));
        if (found != nullptr) {
            tree_.erase(*found);
        }
        return found;
    }

    mutable util::rw_spinlock lock_;
    util::interval_tree tree_;
};

} // namespace gaudi::shim
