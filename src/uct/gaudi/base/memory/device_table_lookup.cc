/* The part of the device table that finds memory by address, and that tells UCX
 * which addresses are device memory. */
#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/ucx/memory_events.h"

#include <algorithm>
#include <shared_mutex>

namespace gaudi::base {

device_table::resolution device_table::resolve(uint64_t start,
                                               uint64_t end) const
{
    resolution found;
    if (of_application_ == 0) {
        found.memory =
            static_cast<device_memory *>(device_memory_.find_cover(start, end));
    } else {
        /* Cards have the same addresses, and the application does not keep
         * apart what it maps on them. */
        const uint64_t last = std::max(end, start + 1);
        device_memory_.for_each_overlap(
            start, last, [&](util::interval_node &node) {
                auto &memory = static_cast<device_memory &>(node);
                if ((node.start > start) || (node.end < end)) {
                    return true;
                }
                found.ambiguous = (found.memory != nullptr) &&
                                  (found.memory->owner != memory.owner);
                found.memory = &memory;
                return !found.ambiguous;
            });
        if (found.ambiguous) {
            return {nullptr, true};
        }
    }
    if ((found.memory == nullptr) && (unseen_ > 0)) {
        found = resolve_unseen(start, end);
    }
    if ((found.memory != nullptr) &&
        ((found.memory->owner == nullptr) || found.memory->owner->is_lost())) {
        found.memory = nullptr;
    }
    return found;
}

/* What no known memory covers: of the one card with unseen memory, unless it
 * reaches into known memory of another card. */
device_table::resolution device_table::resolve_unseen(uint64_t start,
                                                      uint64_t end) const
{
    resolution found;
    for (size_t i = 0; i < card_count_; ++i) {
        const card_state &state = states_[i];
        if (!state.has_unseen || (start < state.unseen.start) ||
            (end > state.unseen.end)) {
            continue;
        }
        if (found.memory != nullptr) {
            return {nullptr, true};
        }
        found.memory = const_cast<device_memory *>(&state.unseen);
    }
    if (found.memory != nullptr) {
        device_memory_.for_each_overlap(
            start, end, [&](util::interval_node &node) {
                found.ambiguous = (static_cast<device_memory &>(node).owner !=
                                   found.memory->owner);
                return !found.ambiguous;
            });
    }
    return found.ambiguous ? resolution{nullptr, true} : found;
}

const char *device_table::why_not(const void *address, size_t length) const
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    std::shared_lock<util::rw_spinlock> guard(memory_lock_);
    return resolve(start, start + length).ambiguous
               ? "have the same addresses on several cards, which cannot be "
                 "told apart"
               : "are in no allocation of device memory";
}

void device_table::announce(const announcements &news)
{
    for (const auto &[start, end] : news.gone) {
        announce_gone(start, end);
    }
    for (const auto &[start, end] : news.appeared) {
        announce_allocation(reinterpret_cast<void *>(start), end - start);
    }
    for (const returned_memory &returned : news.returned) {
        give_back(returned);
    }
}

/* UCX knows addresses, not cards: where another card has some of them, they are
 * announced as unknown again, since what UCX does not know is host memory. */
void device_table::announce_gone(uint64_t start, uint64_t end) const
{
    bool shared = false;
    {
        std::shared_lock<util::rw_spinlock> guard(memory_lock_);
        shared = device_memory_.find_overlap(start, end) != nullptr;
        for (size_t i = 0; (unseen_ > 0) && (i < card_count_); ++i) {
            shared |= states_[i].has_unseen &&
                      (start < states_[i].unseen.end) &&
                      (end > states_[i].unseen.start);
        }
    }
    void *address = reinterpret_cast<void *>(start);
    if (shared) {
        announce_allocation(address, end - start);
    } else {
        announce_free(address, end - start);
    }
}

} // namespace gaudi::base
