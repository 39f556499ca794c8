/**
 * The cards of this process and the memory on and around them.
 *
 * One table per process, shared by all memory domains. Cards are opened when
 * the first memory domain opens and closed when the last one goes. A forked
 * child gets an empty table of its own: it lets go of the file descriptors that
 * it inherited and never touches what the parent has on the cards.
 *
 * Threads: any. Locks:
 *   cards_lock_   opening, closing; held across driver calls, which may enter
 *                 UCM. Nothing that UCM calls takes it
 *   device_pool's held across driver calls; nothing that UCM calls takes it
 *   memory_lock_  the look-up tables; a spinlock, held across nothing. What UCM
 *                 calls takes this one alone
 * and none is held when UCM events are dispatched.
 */
#pragma once

#include "uct/gaudi/base/memory.h"
#include "uct/gaudi/base/registration_cache.h"
#include "uct/gaudi/base/rw_spinlock.h"

#include <memory>
#include <span>

namespace gaudi::base {

/** What a range of addresses is. */
struct memory_location {
    memory_kind kind    = memory_kind::host;
    card *owner         = nullptr; /**< device memory: its card */
    host_memory *mapped = nullptr; /**< host memory: a registration that covers
                                        it, with a reference for the caller */
    device_backing *backing = nullptr; /**< device memory: what other cards can
                                            reach; valid until it is freed */
    bool imported = false; /**< device memory: of another card or process. Only
                                engines that reach host memory reach it */
};

class device_table {
public:
    /** The table of this process; a forked child has another than its parent.
     */
    static device_table &instance();

    /* The handlers of fork, see process.cc. */
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();

    /** Whether the box has a card, open or busy. Takes none. */
    [[nodiscard]] bool any_card();

    /**
     * Open the cards that this process may see, or count one more user.
     *
     * @return UCS_ERR_NO_DEVICE without a driver or card, UCS_ERR_BUSY when
     *         all cards that were wished for are in use.
     */
    [[nodiscard]] ucs_status_t open();

    /** Undo one open. */
    void close();

    /** The open cards; valid between open and close. */
    [[nodiscard]] std::span<const std::unique_ptr<card>> cards() const
    {
        return cards_;
    }

    /** The card of this name, or nullptr. */
    [[nodiscard]] card *find_card(const char *name) const;

    /**
     * The card on which to allocate.
     *
     * @param hint  An address in or near memory of the wished card; NULL, and
     *              an address that is no card's, leave it to the table, which
     *              takes the first card.
     */
    [[nodiscard]] card &card_for_hint(const void *hint) const;

    /**
     * Allocate device memory and announce it.
     *
     * @param length  bytes.
     * @param quiet   Log a failure as a diagnostic, not as an error.
     * @return UCS_ERR_NO_MEMORY when the card has not that much left.
     */
    [[nodiscard]] ucs_status_t allocate(card &owner, size_t length, bool quiet,
                                        device_memory *&memory_p);

    /**
     * Free device memory. The card gets it back when the last dma-buf of it is
     * closed, too.
     *
     * @return UCS_ERR_BUSY while it is registered; it is as before then.
     */
    [[nodiscard]] ucs_status_t free(device_memory *memory);

    /**
     * Register host memory, so that transfers find it by pointer.
     *
     * Makes no driver call: a card maps the memory when it uses it for the
     * first time, and memory that it cannot map (read-only, or not all there)
     * is staged. UCP registers what programs never send from a card, too.
     */
    [[nodiscard]] host_memory *register_host(void *address, size_t length);

    /** Undo a registration. */
    void deregister_host(host_memory *memory);

    /** Let pointers not lead to a registration any more; the caller keeps its
     *  reference. No driver call. */
    void withdraw_host(host_memory &memory);

    /** Withdraw all registrations of host memory that is going away. Called
     *  from UCM. */
    void withdraw_unmapped(uint64_t start, uint64_t end);

    /** Count a registration of device memory. @return nullptr when no
     *  allocation covers the range. */
    [[nodiscard]] device_memory *register_device(const void *address,
                                                 size_t length);

    /**
     * Tell what an address range is.
     *
     * @param location_p  Filled on success.
     * @return UCS_ERR_INVALID_ADDR for a device address that no allocation
     *         covers as a whole.
     */
    [[nodiscard]] ucs_status_t find(const void *address, size_t length,
                                    memory_location &location_p);

    /**
     * Find the allocation around an address range.
     *
     * @return false when the range does not lie in one allocation.
     */
    [[nodiscard]] bool query(const void *address, size_t length,
                             uint64_t &base_p, size_t &length_p,
                             card *&owner_p) const;

    /**
     * Export device memory as a dma-buf of the host pages around it.
     *
     * Nothing is kept for it but by the driver. The memory may be freed while
     * the dma-buf is alive, and stays what it is for who holds that.
     *
     * @param fd_p      A new descriptor, close-on-exec, owned by the caller;
     *                  filled on success, as
     * @param offset_p  the place of the first byte in the dma-buf.
     * @return UCS_ERR_INVALID_ADDR when no allocation covers the range,
     *         UCS_ERR_UNSUPPORTED for imported memory and by drivers without
     *         export; errors were logged.
     */
    [[nodiscard]] ucs_status_t export_dmabuf(const void *address, size_t length,
                                             int &fd_p, size_t &offset_p);

    /**
     * Import part of a dma-buf: device memory of the card from then on.
     *
     * @param fd         Stays the caller's, and may be closed.
     * @param address_p  Filled on success.
     * @return UCS_ERR_UNSUPPORTED by a driver that cannot import,
     *         UCS_ERR_INVALID_PARAM for what is no dma-buf or not in it; errors
     *         were logged.
     */
    [[nodiscard]] ucs_status_t import_dmabuf(card &importer, int fd,
                                             size_t offset, size_t length,
                                             void *&address_p);

    /**
     * Undo an import.
     *
     * @return UCS_ERR_INVALID_ADDR for another address, UCS_ERR_BUSY while it
     *         is registered; errors were logged.
     */
    [[nodiscard]] ucs_status_t release_import(const void *address);

    /** Whether an address can only be a device address. */
    [[nodiscard]] static bool is_device_address(const void *address)
    {
        return (reinterpret_cast<uintptr_t>(address) >> host_address_bits) != 0;
    }

    /** Whether the range has no address that can be host memory's, or none
     *  that can be device memory's, and does not wrap around. */
    [[nodiscard]] static bool is_plausible(const void *address, size_t length)
    {
        const auto start     = reinterpret_cast<uintptr_t>(address);
        const uint64_t limit = is_device_address(address)
                                   ? UINT64_MAX
                                   : uint64_t{1} << host_address_bits;
        return length <= limit - start;
    }

    /** The registrations that outlive their users. */
    [[nodiscard]] registration_cache &registrations() { return registrations_; }

    /** Append (address, length) of every allocation. */
    void collect_allocations(
        std::vector<std::pair<void *, size_t>> &allocations) const;

private:
    /* User addresses are below this, with five-level paging too; the device
     * addresses of Gaudi2 and Gaudi3 are above. */
    static constexpr unsigned host_address_bits = 56;

    ucs_status_t open_cards();

    static std::atomic<device_table *> current_;

    std::mutex cards_lock_;
    unsigned users_ = 0;
    std::vector<std::unique_ptr<card>> cards_;

    mutable rw_spinlock memory_lock_;
    interval_tree device_memory_;
    interval_tree host_memory_;

    registration_cache registrations_{*this};
};

} // namespace gaudi::base
