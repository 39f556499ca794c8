/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/import_windows.h"

#include <algorithm>
#include <utility>

namespace gaudi::base {

/* The oldest one: while it is kept, no other comes before it. */
import_window *import_windows::find_locked(uint64_t address, uint64_t end)
{
    import_window *oldest = nullptr;
    windows_.for_each_overlap(
        address, address + 1, [&](util::interval_node &node) {
            auto &window = static_cast<import_window &>(node);
            if ((window.end >= end) &&
                ((oldest == nullptr) || (window.number < oldest->number))) {
                oldest = &window;
            }
            return true;
        });
    return oldest;
}

kept_window import_windows::find(uint64_t address, uint64_t length)
{
    length                = std::max<uint64_t>(length, 1);
    const uint64_t offset = address - start_;
    if ((address < start_) || (length > size_) || (offset > size_ - length)) {
        return nullptr;
    }
    {
        const std::lock_guard<util::brief_lock> guard(lock_);
        if (import_window *known = find_locked(address, address + length)) {
            return known->listed_;
        }
    }
    uint64_t first = 0;
    uint64_t last  = size_;
    if (parts_) {
        const uint64_t end  = offset + length;
        const uint64_t rest = -end % window_grain;
        first               = offset / window_grain * window_grain;
        last                = end + std::min(rest, size_ - end);
    }
    auto fresh =
        std::make_shared<import_window>(start_ + first, last - first, holds_);
    const std::lock_guard<util::brief_lock> guard(lock_);
    if (import_window *known = find_locked(address, address + length)) {
        return known->listed_;
    }
    fresh->number  = made_++;
    fresh->listed_ = fresh;
    windows_.insert(*fresh);
    return fresh;
}

bool import_windows::remove_unused(import_window &window, kept_window &gone_p)
{
    const std::lock_guard<util::brief_lock> guard(lock_);
    if (window.listed_.use_count() > 1) {
        return false;
    }
    windows_.erase(window);
    gone_p = std::move(window.listed_);
    return true;
}

kept_window import_windows::take_one()
{
    const std::lock_guard<util::brief_lock> guard(lock_);
    auto *any =
        static_cast<import_window *>(windows_.find_overlap(0, UINT64_MAX));
    if (any == nullptr) {
        return nullptr;
    }
    windows_.erase(*any);
    return std::move(any->listed_);
}

} // namespace gaudi::base
