/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What is at an address: device memory of which card, or host memory that cards
 * can reach.
 *
 * One map per process; a forked child gets an empty one of its own. Device
 * memory comes from us (device_pool.h), from others as dma-bufs (dmabuf.h), and
 * from the application, which maps what it likes where it likes. Where it has
 * mapped some unseen, all addresses of that card count as device memory, after
 * everything that is known exactly.
 *
 * Threads: any. One lock, memory_lock_, a spinlock that is held across nothing:
 * no driver call, no allocation, no UCX call. What UCM calls takes this one
 * alone. It is not held when UCM events are dispatched.
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
    device_location() = default;
    explicit device_location(const device_memory &memory)
        : owner(memory.owner), imported(memory.imported), exact(memory.exact),
          is_sole(exact), start(memory.start), end(memory.end)
    {}

    card *owner;
    bool imported; /**< of another card or process: only engines that reach host
                        memory reach it */
    bool exact;    /**< false: mapped unseen; what follows is all that it can be
                        in */
    bool is_sole;  /**< for all of what follows the answer is the same */
    uint64_t start;
    uint64_t end;
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

    /** Find a registration that covers host memory.
     *  @return With a reference for the caller, or nullptr. */
    [[nodiscard]] host_memory *find_host(uint64_t start, size_t length) const
    {
        std::shared_lock<util::rw_spinlock> guard(memory_lock_);
        auto *found = static_cast<host_memory *>(
            host_memory_.find_cover(start, start + length));
        if (found != nullptr) {
            found->get();
        }
        return found;
    }

    /** Why @ref find_device or @ref register_device refuse a range of device
     *  addresses. */
    [[nodiscard]] refusal why_not(const void *address, size_t length) const;

    /** Append (address, length) of all device memory. */
    void collect_allocations(
        std::vector<std::pair<void *, size_t>> &allocations) const;

    /* --- registering -------------------------------------------------------*/

    /** Register host memory, so that transfers find it by pointer. Makes no
     *  driver call: a card maps the memory when it uses it for the first time,
     *  and memory that it cannot map (read-only, or not all there) is staged.
     *  UCP registers what programs never send from a card, too.
     *  @param is_staging  It is the transports' own, which every card maps. */
    [[nodiscard]] host_memory *register_host(void *address, size_t length,
                                             bool is_staging = false);

    /** Undo a registration. */
    void deregister_host(host_memory *memory);

    /** Let pointers not lead to a registration any more; the caller keeps its
     *  reference. No driver call. */
    void withdraw_host(host_memory &memory);

    /** Withdraw all registrations of host memory that is going away. Called
     *  from UCM. @return Whether there were any. */
    bool withdraw_unmapped(uint64_t start, uint64_t end);

    /** Count a registration of device memory. @return nullptr when no
     *  allocation covers the range, or several cards have it. */
    [[nodiscard]] device_memory *register_device(const void *address,
                                                 size_t length);

    /** The same without the bytes behind an allocation that UCP adds. */
    [[nodiscard]] device_memory *hold_device(const void *address,
                                             size_t length);

    /** Undo a registration of device memory. */
    void deregister_device(device_memory *memory);

    /* --- what brings device memory, and takes it away ----------------------*/

    /** Let addresses lead to memory. @return false when they lead to other
     *  memory already, where that may not be. */
    [[nodiscard]] bool add(device_memory &memory);

    /** Let addresses not lead to memory any more. */
    void remove(device_memory &memory);

    /** Take an import out, as @ref remove does. @return nullptr when none
     * begins there. */
    [[nodiscard]] device_memory *take_import(const void *address);

    /** Have a function called with memory that is to be destroyed and still has
     *  registrations: it may undo those that it knows. Without locks. */
    static void on_end(void (*ending)(device_memory &)) { ending_ = ending; }

    /** Destroy memory that was removed: now, or when its last registration has
     *  ended, since caches of registrations let go of them a little later. */
    void end(device_memory &memory);

    /** Remove memory, announce it as gone, and end it. */
    void free(device_memory &memory);

    /** Memory that was added has a card now, or none any more. */
    void set_owner(device_memory &memory, card *owner, device_backing *backing);

    /** Tell UCM that device memory is gone. Without locks, before the addresses
     *  can be given out again. */
    void announce_gone(uint64_t start, uint64_t end) const;

private:
    /* Under memory_lock_. */
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
        explicit device_change(memory_map &of) : guard_(of.memory_lock_)
        {
            of.device_version_.fetch_add(1, std::memory_order_release);
        }

    private:
        std::lock_guard<util::rw_spinlock> guard_;
    };

    mutable util::rw_spinlock memory_lock_;
    std::atomic<uint64_t> device_version_{0};
    util::interval_tree device_memory_;
    util::interval_tree host_memory_;
    size_t of_application_ = 0; /* ranges in device_memory_ */
};

} // namespace gaudi::base
