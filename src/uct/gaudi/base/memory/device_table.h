/**
 * The cards of this process and the memory on and around them.
 *
 * One table per process, shared by all memory domains. Cards are opened when
 * the first memory domain opens and closed when the last one goes. A forked
 * child gets an empty table of its own: the file descriptors that it inherited
 * are closed, and it never touches what the parent has on the cards.
 *
 * Cards that the application has open are used through its descriptors, and
 * never closed by us. When it closes one, the card is lost: what is left of it
 * refuses to do anything. When it opens the card again, that is another card to
 * the table. Device memory that the application maps on any card is known from
 * the hooks on the driver (driver_hooks.h); where it was mapped unseen, all
 * addresses of that card count as device memory, after everything that is known
 * exactly.
 *
 * Threads: any. Locks:
 *   opening_lock_ one opening of cards at a time, with its waits for cards in
 *                 reset; before cards_lock_. What neither opens cards nor asks
 *                 why there is none does not take it
 *   cards_lock_   opening, closing; held across driver calls, which may enter
 *                 UCM. Not while cards in reset are waited for, except by who
 *                 has some open already. Nothing that UCM calls takes it, nor
 *                 do join and a close that is not the last one
 *   device_pool's held across driver calls; nothing that UCM calls takes it
 *   application_registry's  what the hooks of the driver saw; held across
 *                 small allocations alone, under cards_lock_ or none
 *   memory_lock_  the look-up tables; a spinlock, held across nothing. What UCM
 *                 calls takes this one alone
 * and none is held when UCM events are dispatched.
 */
#pragma once

#include "uct/gaudi/base/cards/missing_card.h"
#include "uct/gaudi/base/cards/reset_wait.h"
#include "uct/gaudi/base/memory/application/application_memory.h"
#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/ucx/config.h"
#include "util/fork_handlers.h"
#include "util/rw_spinlock.h"

#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>

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

/** Which card an application asks the driver for. */
struct card_wish {
    const char *bus_id = nullptr; /**< NULL: any, or by module */
    int64_t module_id  = -1;      /**< -1: any, or by bus id */
    int name           = HLTHUNK_DEVICE_DONT_CARE;
};

class device_table {
public:
    /** Cards that a process can have open between the first open and the last
     *  close; one that the application reopens counts once more. */
    static constexpr size_t max_cards = 64;

    /** The table of this process; a forked child has another than its parent.
     */
    static device_table &instance();

    /** Whether the box has a card, open or busy. Takes none. */
    [[nodiscard]] bool any_card();

    /**
     * Open the cards that this process may see, or count one more user. Waits
     * for cards in reset, if it takes these (UCX_GAUDI_RESET_TIMEOUT).
     *
     * @return UCS_ERR_NO_DEVICE without a driver or card, UCS_ERR_BUSY when
     *         all cards that were wished for are in use.
     */
    [[nodiscard]] ucs_status_t open();

    /** Count one more user of the cards, see card_hold.h. Takes no lock.
     *  @return false when none is open; then there is nothing to undo. */
    [[nodiscard]] bool join();

    /**
     * Somebody could not have Gaudi memory: say why there is no card, at
     * warning level. Once per process; nothing when memory can be allocated,
     * or the log has the reason already.
     */
    void explain_missing_card();

    /** Undo one open, or one join. */
    void close();

    /** The open cards, lost ones among them; valid between open and close. */
    [[nodiscard]] std::span<const std::unique_ptr<card>> cards() const
    {
        return {cards_.data(), card_count_.load(std::memory_order_acquire)};
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
     * Free device memory: no address leads to it any more. The card gets it
     * back when its last registration has ended, since caches of registrations
     * let go of them a little later, and the last dma-buf of it is closed.
     */
    void free(device_memory *memory);

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
     *  from UCM. @return Whether there were any. */
    bool withdraw_unmapped(uint64_t start, uint64_t end);

    /** Count a registration of device memory. @return nullptr when no
     *  allocation covers the range, or several cards have it. */
    [[nodiscard]] device_memory *register_device(const void *address,
                                                 size_t length);

    /** Undo a registration of device memory. */
    void deregister_device(device_memory *memory);

    /** Why @ref find or @ref register_device refuse a range of device
     *  addresses, to follow "... bytes at ...". */
    [[nodiscard]] const char *why_not(const void *address, size_t length) const;

    /**
     * Tell what an address range is.
     *
     * @param location_p  Filled on success.
     * @return UCS_ERR_INVALID_ADDR for a device address that no allocation
     *         covers as a whole, and for one that is in use on several cards.
     */
    [[nodiscard]] ucs_status_t find(const void *address, size_t length,
                                    memory_location &location_p);

    /**
     * Find the allocation around an address range.
     *
     * @param exact_p  false: the memory was mapped unseen, and the range that
     *                 is told is all that it can be in; may be NULL.
     * @return false when the range does not lie in one allocation, or in
     *         allocations of several cards.
     */
    [[nodiscard]] bool query(const void *address, size_t length,
                             uint64_t &base_p, size_t &length_p, card *&owner_p,
                             bool *exact_p = nullptr) const;

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
     * Undo an import. It is unmapped when its last registration has ended.
     *
     * @return UCS_ERR_INVALID_ADDR for another address; logged.
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

    /** Append (address, length) of every allocation. */
    void collect_allocations(
        std::vector<std::pair<void *, size_t>> &allocations) const;

    /* What the hooks of the driver report, see driver_hooks.h; each on the
     * thread that made the call. */

    /** The application has opened a compute node, perhaps one that it closed
     *  behind our back before. */
    void application_opened(int fd);
    /** It is about to close a descriptor, whatever that is; */
    void application_closing(int fd);
    /** and has done so. */
    void application_closed(int fd);
    void application_allocated(int fd, uint64_t handle, uint64_t size);
    void application_freed(int fd, uint64_t handle);
    void application_mapped(int fd, uint64_t handle, uint64_t va);
    /** It is about to unmap an address. @return What to give to
     *  @ref application_unmapped; nullptr when it is not known. */
    [[nodiscard]] std::unique_ptr<application_memory>
    application_unmapping(int fd, uint64_t va);
    void application_unmapped(std::unique_ptr<application_memory> memory,
                              bool done);

    /**
     * Let the application use a card that we opened before it could.
     *
     * @return A new descriptor of the open card, close-on-exec, owned by the
     *         caller; -1 when none of ours is wished for, or the application
     *         has it already.
     */
    [[nodiscard]] int lend(const card_wish &wish);

    /** Take notice of cards that the application has opened or closed without
     *  a hook to tell. */
    void look_around();

private:
    /* Of the card with the same index in cards_. */
    struct card_state {
        shim::node_identity node;
        bool adopted = false;
        int lent     = -1; /* the application's duplicate of our descriptor */
        bool has_unseen = false; /* it has memory that was mapped unseen: */
        device_memory unseen;    /* all addresses of the card */
    };

    /* One user more. Not to end under cards_lock_. */
    struct closer {
        void operator()(device_table *table) const { table->close(); }
    };
    using user = std::unique_ptr<device_table, closer>;

    /* What the application had on one of our cards through its duplicate. The
     * card is held open for it. */
    struct returned_memory {
        size_t index;
        std::vector<uint64_t> addresses;
        std::vector<uint64_t> handles;
        user holding;
    };

    /* Events to be told when no lock is held. */
    struct announcements {
        std::vector<std::pair<uint64_t, uint64_t>> appeared; /* start, end */
        std::vector<std::pair<uint64_t, uint64_t>> gone;
        std::vector<returned_memory> returned; /* to be freed after that */
    };

    /* User addresses are below this, with five-level paging too; the device
     * addresses of Gaudi2 and Gaudi3 are above. */
    static constexpr unsigned host_address_bits = 56;

    /* Under both locks. */
    ucs_status_t open_cards(announcements &news,
                            std::unique_lock<std::mutex> &cards_guard);
    [[nodiscard]] bool
    wait_for_reset(std::unique_lock<std::mutex> &cards_guard);

    /* Under opening_lock_. */
    [[nodiscard]] bool is_news(const std::string &text);
    ucs_status_t refuse_setting(const std::string &text);
    [[nodiscard]] std::string
    why_nothing_was_tried(const shim::driver &driver) const;

    [[nodiscard]] bool leave_to_others();

    /* Under cards_lock_. */
    void add_card(std::unique_ptr<card> added, const shim::node_identity &node,
                  bool adopted, announcements &news);
    void adopt_open_cards(const shim::driver &driver,
                          const std::vector<shim::card_info> &box,
                          const shim::visible_cards &visible,
                          announcements &news);
    [[nodiscard]] bool knows(const shim::node_identity &node) const;
    [[nodiscard]] card *find_adopted(const std::string &bus_id) const;
    void drop_closed(announcements &news);
    void lose_card(size_t index, announcements &news);
    void forget_cards();
    void return_lent(size_t index, announcements &news);

    void claim(application_memory &memory);
    void drop(std::unique_ptr<application_memory> memory, announcements &news);
    void drop_all(const application_registry::selection &which,
                  announcements &news, std::vector<uint64_t> *handles_p);
    void end(device_memory &memory);
    static void destroy(device_memory &memory);
    void announce(const announcements &news);
    void give_back(const returned_memory &returned);
    void announce_gone(uint64_t start, uint64_t end) const;

    /* Under memory_lock_. */
    struct resolution {
        device_memory *memory = nullptr;
        bool ambiguous        = false; /* several cards have it */
    };
    [[nodiscard]] resolution resolve(uint64_t start, uint64_t end) const;
    [[nodiscard]] resolution resolve_unseen(uint64_t start, uint64_t end) const;

    static std::atomic<device_table *> current_;

    std::mutex opening_lock_;
    reset_wait reset_wait_{config().reset_timeout}; /* under it */

    std::mutex cards_lock_;
    std::atomic<unsigned> users_{0}; /* from and to 0: under cards_lock_ */
    std::array<std::unique_ptr<card>, max_cards> cards_;
    std::array<card_state, max_cards> states_; /* node: constant when counted */
    std::atomic<size_t> card_count_{0};

    mutable util::rw_spinlock memory_lock_;
    util::interval_tree device_memory_;
    util::interval_tree host_memory_;
    size_t of_application_ = 0; /* ranges in device_memory_ */
    size_t unseen_         = 0; /* cards with memory that was mapped unseen */
    size_t gone_           = 0; /* memory that only registrations keep */

    application_registry application_;

    /* Under opening_lock_. */
    missing_card missing_;       /* of the last time that cards were opened */
    std::set<std::string> told_; /* what the log has of missing cards */
    bool explained_ = false;     /* why there is none */
};

} // namespace gaudi::base
