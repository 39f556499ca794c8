/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The parts by which cards import a block of device memory: what the driver
 * mapped in one piece is up to all memory of a card, and a copy must not wait
 * for what it does not touch.
 *
 * The vendor's driver maps a dma-buf in host pages, each of which it looks up
 * in a hash of fixed size (map_device_va_from_dmabuf_fd, get_pgt_info): 8 GB
 * take it half a second, 96 GB minutes, under a lock that others need.
 *
 * Threads: any. A spinlock is held for look-ups, never across driver calls.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/cards/card.h"
#include "util/interval_tree.h"
#include "util/locks.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace gaudi::base {

/** Where cards find one piece of memory: each that uses it maps it once.
 *
 *  Readers take no lock. One card maps at a time; who takes all entries away is
 *  the last one to use it. */
class card_mappings {
public:
    /** What came of it for a card; never changed after that. */
    struct entry {
        const card *user = nullptr;
        int result       = 0; /**< 0, or -errno of the driver */
        held_cards cards;     /**< outlive the mapping */
        shim::registration mapping;
        std::unique_ptr<entry> next;
    };

    /** What the driver said. */
    struct answer {
        int result;    /**< 0 or -errno */
        bool is_final; /**< it is kept, and the driver not asked again */
    };

    /** @param holds  Whether it holds the cards that use it; what goes before
     *                they do need not. */
    explicit card_mappings(bool holds = true) : holds_(holds) {}
    ~card_mappings() { (void)take(); }
    card_mappings(const card_mappings &)            = delete;
    card_mappings &operator=(const card_mappings &) = delete;

    /**
     * The device address of the first byte on a card.
     *
     * @param map   Called with a mapping to fill when nothing is known of the
     *              card: has the driver map the memory, and gives an @ref
     *              answer.
     * @return 0 or -errno.
     */
    template <typename Map>
    int va_on(const card &user, Map &&map, uint64_t &va_p)
    {
        const entry *known = find(user);
        if (known == nullptr) {
            const std::lock_guard<std::mutex> guard(lock_);
            known = find(user);
            if (known == nullptr) {
                std::unique_ptr<entry> fresh(new (std::nothrow) entry);
                if (fresh == nullptr) {
                    return -ENOMEM;
                }
                const answer given = map(fresh->mapping);
                if (!given.is_final) {
                    return given.result;
                }
                fresh->user   = &user;
                fresh->result = given.result;
                if (holds_) {
                    fresh->cards = user.hold();
                }
                known = add(std::move(fresh));
            }
        }
        va_p = known->mapping.address();
        return known->result;
    }

    /** Whether the driver has said something final of a card. */
    [[nodiscard]] bool knows(const card &user) const
    {
        return find(user) != nullptr;
    }

    /** All of them, for the caller to destroy; the list is empty. */
    [[nodiscard]] std::unique_ptr<entry> take()
    {
        return std::unique_ptr<entry>(first_.exchange(nullptr));
    }

private:
    [[nodiscard]] const entry *find(const card &user) const
    {
        const entry *known = first_.load(std::memory_order_acquire);
        while ((known != nullptr) && (known->user != &user)) {
            known = known->next.get();
        }
        return known;
    }

    const entry *add(std::unique_ptr<entry> fresh)
    {
        fresh->next.reset(first_.load(std::memory_order_relaxed));
        entry *made = fresh.release();
        first_.store(made, std::memory_order_release);
        return made;
    }

    const bool holds_;
    std::mutex lock_; /* adds entries; held across the driver call */
    std::atomic<entry *> first_{nullptr};
};

/** What windows start and end at, from the block's first byte on. */
inline constexpr uint64_t window_grain = uint64_t{64} << 20;

/** Part of a block, by device addresses of its owner. */
struct import_window : util::interval_node {
    import_window(uint64_t first, uint64_t length, bool holds)
        : util::interval_node(first, length), imports(holds)
    {}

    [[nodiscard]] uint64_t size() const { return end - start; }

    card_mappings imports;
    std::atomic<bool> opens_in_background{false};
    std::atomic<uint64_t> used_at{0}; /* ucs_time_t */
    uint64_t number = 0;              /* later ones have higher numbers */

private:
    friend class import_windows;
    std::shared_ptr<import_window> listed_; /* itself, while it is found */
};

using kept_window = std::shared_ptr<import_window>;

/** Those of one block. */
class import_windows {
public:
    /** @param parts  Whether its driver exports parts; else all of it is one
     *                window.
     *  @param holds  As card_mappings. */
    import_windows(uint64_t start, uint64_t size, bool parts, bool holds)
        : start_(start), size_(size), parts_(parts), holds_(holds)
    {}
    ~import_windows()
    {
        while (take_one() != nullptr) {}
    }
    import_windows(const import_windows &)            = delete;
    import_windows &operator=(const import_windows &) = delete;

    /**
     * The window that covers a range, made if there is none: the smallest one
     * that starts and ends at whole grains, or at the ends of the block.
     *
     * While anybody keeps it, the same range is given the same window.
     *
     * @return nullptr for what is not in the block. Throws bad_alloc.
     */
    [[nodiscard]] kept_window find(uint64_t address, uint64_t length);

    /** Have a window be found no more, unless somebody else keeps it.
     *  @param gone_p  It, for the caller to destroy. */
    [[nodiscard]] bool remove_unused(import_window &window,
                                     kept_window &gone_p);

    /** Any of them, kept or not, for the caller to destroy; nullptr: there are
     *  none. */
    [[nodiscard]] kept_window take_one();

private:
    [[nodiscard]] import_window *find_locked(uint64_t address, uint64_t end);

    const uint64_t start_;
    const uint64_t size_;
    const bool parts_;
    const bool holds_;
    util::brief_lock lock_;
    util::interval_tree windows_;
    uint64_t made_ = 0;
};

} // namespace gaudi::base
