/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which card has the device memory at an address.
 *
 * One map per process; a forked child gets an empty one of its own. Device
 * memory comes from us (device_pool.h), from others as dma-bufs (dmabuf.h), and
 * from the application, which maps what it likes where it likes. Where it has
 * mapped some unseen, all addresses of that card count as device memory, after
 * everything that is known exactly.
 *
 * Threads: any. One lock, lock_, a spinlock that is held across nothing: no
 * driver call, no allocation, no UCX call.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/memory.h"
#include "util/addresses.h"
#include "util/locks.h"
#include "util/process.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace gaudi::base {

/** Where a range of device addresses is, and the allocation around it. */
struct device_location {
    card *owner;
    bool imported; /**< of another card or process: only engines that reach
                        host memory reach it */
    bool exact;    /**< false: mapped unseen; what follows is all that it can
                        be in */
    bool is_sole;  /**< for all of what follows the answer is the same */
    uint64_t start;
    uint64_t end;
    uint64_t version;      /**< memory_map::device_version() of this answer */
    device_memory *memory; /**< to be held by @ref memory_map::hold */
};

/** Why a range of device addresses is refused. */
struct refusal {
    ucs_status_t status; /**< UCS_ERR_NO_DEVICE for memory of a lost card,
                              UCS_ERR_INVALID_ADDR for all others */
    const char *text;    /**< to follow "... bytes at ..." */
    const card *lost;    /**< the card, or nullptr */
};

class memory_map {
public:
    /** The map of this process. */
    static memory_map &instance()
    {
        return util::of_this_process<memory_map>();
    }

    /** Whether an address can only be a device address, also when no card is
     *  open. A card whose memory lies among host pointers needs its range kept
     *  free of host memory, and a second look here. */
    [[nodiscard]] static bool is_device(uint64_t address)
    {
        return shim::may_be_device_memory(address);
    }
    [[nodiscard]] static bool is_device(const void *address)
    {
        return is_device(reinterpret_cast<uintptr_t>(address));
    }

    /** Whether the range has no address that can be host memory's, or none
     *  that can be device memory's, and does not wrap around. */
    [[nodiscard]] static bool is_plausible(const void *address, size_t length)
    {
        const auto start    = reinterpret_cast<uintptr_t>(address);
        const uint64_t last = is_device(address)
                                  ? UINT64_MAX - 1
                                  : (start | (util::host_address_end - 1));
        return length <= last - start + 1;
    }

    /* --- looking up --------------------------------------------------------*/

    /** Find device memory.
     *  @return None where no allocation of a card that works covers the whole
     *          range, or several cards have it. */
    [[nodiscard]] std::optional<device_location>
    find_device(uint64_t start, size_t length) const;

    /** Changes whenever an answer of @ref find_device may have become another
     *  one, but for a card that is lost. */
    [[nodiscard]] uint64_t device_version() const
    {
        return device_version_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::optional<device_location>
    find_device(const void *address, size_t length) const
    {
        return find_device(reinterpret_cast<uintptr_t>(address), length);
    }

    /** Keep memory that was found, and its addresses, until its
     *  device_memory::put. @return false when the map has changed since. */
    [[nodiscard]] bool hold(const device_location &found) const
    {
        const std::shared_lock<util::rw_spinlock> guard(lock_);
        const bool holds = (found.version == device_version());
        if (ucs_likely(holds)) {
            found.memory->hold();
        }
        return holds;
    }

    /** Why @ref find_device or @ref register_device refuse a range of device
     *  addresses. */
    [[nodiscard]] refusal why_not(const void *address, size_t length) const;

    /** Append (address, length) of all device memory. */
    void collect_allocations(
        std::vector<std::pair<void *, size_t>> &allocations) const;

    /* --- registering -------------------------------------------------------*/

    /** Find device memory, with a reference. @return nullptr when no
     *  allocation covers the range, or several cards have it. */
    [[nodiscard]] device_memory *hold_device(const void *address,
                                             size_t length);

    /** The same for a range that UCP may have rounded up: without the bytes
     *  behind its allocation. */
    [[nodiscard]] device_memory *register_device(const void *address,
                                                 size_t length);

    /** Undo one of these. */
    static void deregister_device(device_memory *memory) { memory->put(); }

    /* --- what brings device memory, and takes it away ----------------------*/

    /** Let addresses lead to memory. @return false when they lead to other
     *  memory already, where that may not be. */
    [[nodiscard]] bool add(device_memory &memory);

    /** Let addresses not lead to memory any more. */
    void remove(device_memory &memory);

    /** Take an import out, as @ref remove does. @return nullptr when none
     * begins there. */
    [[nodiscard]] device_memory *take_import(const void *address);

    /** Have a function called with memory that has been removed, before its
     *  owner's reference is dropped. Without locks. */
    static void on_end(void (*ending)(device_memory &)) { ending_ = ending; }

    /** Call that function. */
    static void end_uses(device_memory &memory);

    /** The same, and drop the owner's reference to memory that was removed. */
    static void end(device_memory &memory);

    /** Remove memory, announce it as gone, and end it. */
    void free(device_memory &memory);

    /** Memory that was added has a card now, or none any more. */
    void set_owner(device_memory &memory, card *owner, device_backing *backing);

    /** Tell UCM that device memory is gone. Without locks, before the addresses
     *  can be given out again. */
    void announce_gone(uint64_t start, uint64_t end) const;

private:
    /* Under the lock. */
    struct resolution {
        device_memory *memory = nullptr;
        bool ambiguous        = false;   /* several cards have it */
        const card *lost      = nullptr; /* whose it was */
    };
    [[nodiscard]] resolution resolve(uint64_t start, uint64_t end) const;

    /* Visit what overlaps a range until it returns false. */
    template <typename Visit>
    void for_each_device(uint64_t start, uint64_t end, Visit &&visit) const
    {
        device_memory_.for_each_overlap(
            start, end, [&](util::interval_node &node) {
                return visit(static_cast<device_memory &>(node));
            });
    }

    static inline std::atomic<void (*)(device_memory &)> ending_{nullptr};

    /* To change what is known of device memory. */
    class device_change {
    public:
        explicit device_change(memory_map &of) : guard_(of.lock_)
        {
            of.device_version_.fetch_add(1, std::memory_order_release);
        }

    private:
        std::lock_guard<util::rw_spinlock> guard_;
    };

    mutable util::rw_spinlock lock_;
    std::atomic<uint64_t> device_version_{0};
    util::interval_tree device_memory_;
    size_t of_application_ = 0; /* ranges in device_memory_ */
};

} // namespace gaudi::base
