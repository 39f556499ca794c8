/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/memory_map.h"

#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/rcache.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace gaudi::base {

namespace {

/* The shortest length that UCP can have rounded up to this range. */
size_t length_before_rounding(uintptr_t start, size_t length)
{
    const uintptr_t ends     = start | (start + length);
    const uintptr_t multiple = ends & -ends;
    if (multiple < least_rounding) {
        return length;
    }
    const uintptr_t rounding = std::min(multiple, most_rounding) - 1;
    return (length > rounding) ? length - rounding : 1;
}

} // namespace

/* Cards have the same addresses, and the application does not keep apart what
 * it maps on them. Memory that was mapped unseen is where nothing else is
 * known, and nobody can tell where it ends. */
memory_map::resolution memory_map::resolve(uint64_t start, uint64_t end) const
{
    resolution found;
    if (of_application_ == 0) {
        found.memory =
            static_cast<device_memory *>(device_memory_.find_cover(start, end));
    } else {
        const uint64_t last = std::max(end, start + 1);
        const auto covers   = [&](const device_memory &each) {
            return (each.start <= start) && (each.end >= end);
        };
        device_memory *&least = found.memory; /* in the application's block */
        for_each_device(start, last, [&](device_memory &each) {
            if (covers(each) &&
                ((least == nullptr) ||
                 (each.end - each.start < least->end - least->start))) {
                least = &each;
            }
            return true;
        });
        for_each_device(start, last, [&](const device_memory &other) {
            found.ambiguous = (least != nullptr) &&
                              (other.owner != least->owner) &&
                              (!least->exact || (other.exact && covers(other)));
            return !found.ambiguous;
        });
        if (found.ambiguous) {
            return {nullptr, true};
        }
    }
    if (found.memory != nullptr) {
        const card *owner = found.memory->owner;
        if ((owner == nullptr) || owner->is_lost()) {
            return {.lost = owner};
        }
    }
    return found;
}

std::optional<device_location> memory_map::find_device(uint64_t start,
                                                       size_t length) const
{
    std::shared_lock<util::rw_spinlock> guard(lock_);
    device_memory *memory = resolve(start, start + length).memory;
    if (memory == nullptr) {
        return std::nullopt;
    }
    bool is_sole = memory->exact;
    if (is_sole && (of_application_ > 0)) {
        for_each_device(memory->start, memory->end,
                        [&](const device_memory &each) {
                            is_sole = (&each == memory) || !each.exact;
                            return is_sole;
                        });
    }
    return device_location{
        memory->owner, memory->imported, memory->exact,    is_sole,
        memory->start, memory->end,      device_version(), memory};
}

refusal memory_map::why_not(const void *address, size_t length) const
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    std::shared_lock<util::rw_spinlock> guard(lock_);
    const resolution found = resolve(start, start + length);
    if (found.lost != nullptr) {
        return {UCS_ERR_NO_DEVICE, "were on a card that is lost", found.lost};
    }
    return {UCS_ERR_INVALID_ADDR,
            found.ambiguous
                ? "have the same addresses on several cards, which cannot be "
                  "told apart"
                : "are in no allocation of device memory",
            nullptr};
}

void memory_map::collect_allocations(
    std::vector<std::pair<void *, size_t>> &allocations) const
{
    /* Room first: the lock is held across no allocation. */
    for (size_t count = 0;;) {
        allocations.reserve(count);
        std::shared_lock<util::rw_spinlock> guard(lock_);
        count = device_memory_.size();
        if (count > allocations.capacity()) {
            continue;
        }
        /* What is known exactly is told over what was mapped unseen. */
        for (const bool exact : {false, true}) {
            for_each_device(0, UINT64_MAX, [&](const device_memory &each) {
                if (each.exact == exact) {
                    allocations.emplace_back(
                        reinterpret_cast<void *>(each.start),
                        each.end - each.start);
                }
                return true;
            });
        }
        return;
    }
}

device_memory *memory_map::hold_device(const void *address, size_t length)
{
    const auto start = reinterpret_cast<uintptr_t>(address);

    std::shared_lock<util::rw_spinlock> guard(lock_);
    device_memory *memory = resolve(start, start + length).memory;
    if (memory != nullptr) {
        memory->hold();
    }
    return memory;
}

device_memory *memory_map::register_device(const void *address, size_t length)
{
    device_memory *memory = hold_device(address, length);
    if ((memory == nullptr) && (length > 0)) {
        /* UCP rounds up what it registers. The driver has mapped whole pages,
         * and nobody else is given the rest. */
        memory = hold_device(address,
                             length_before_rounding(
                                 reinterpret_cast<uintptr_t>(address), length));
    }
    return memory;
}

bool memory_map::add(device_memory &memory)
{
    const device_change guard(*this);
    bool is_free = true;
    if (memory.of_application) {
        ++of_application_;
    } else {
        /* What is allocated for us may come from a block of a framework's. */
        for_each_device(
            memory.start, memory.end, [&](const device_memory &other) {
                is_free = !other.exact || (other.of_application &&
                                           (other.owner == memory.owner));
                return is_free;
            });
    }
    if (is_free) {
        device_memory_.insert(memory);
    }
    return is_free;
}

void memory_map::remove(device_memory &memory)
{
    const device_change guard(*this);
    device_memory_.erase(memory);
    of_application_ -= memory.of_application ? 1 : 0;
}

device_memory *memory_map::take_import(const void *address)
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    if (!is_device(address) || (start == UINT64_MAX)) {
        return nullptr;
    }
    const device_change guard(*this);
    device_memory *found = nullptr;
    for_each_device(start, start + 1, [&](device_memory &each) {
        found = (each.imported && (each.start == start)) ? &each : nullptr;
        return found == nullptr;
    });
    if (found != nullptr) {
        device_memory_.erase(*found);
    }
    return found;
}

void memory_map::end_uses(device_memory &memory)
{
    if (const auto ending = ending_.load()) {
        ending(memory);
    }
}

void memory_map::end(device_memory &memory)
{
    memory.allocation.invalidate();
    end_uses(memory);
    memory.put();
}

void memory_map::free(device_memory &memory)
{
    remove(memory);
    announce_gone(memory.start, memory.end);
    end(memory);
}

void memory_map::set_owner(device_memory &memory, card *owner,
                           device_backing *backing)
{
    const device_change guard(*this);
    memory.owner   = owner;
    memory.backing = backing;
}

/* UCX knows addresses, not cards: where another card has some of them, or gets
 * some meanwhile, they are announced as unknown again, since what UCX does not
 * know is host memory. */
void memory_map::announce_gone(uint64_t start, uint64_t end) const
{
    const auto is_shared = [&] {
        std::shared_lock<util::rw_spinlock> guard(lock_);
        return device_memory_.find_overlap(start, end) != nullptr;
    };
    void *address = reinterpret_cast<void *>(start);
    if (!is_shared()) {
        announce_free(address, end - start);
    }
    if (is_shared()) {
        announce_allocation(address, end - start);
    }
}

} // namespace gaudi::base
