/**
 * Where cards find one piece of memory: each that uses it maps it once.
 *
 * Readers take no lock. Who adds or takes entries away holds the owner's mutex,
 * across the driver call: one card maps at a time.
 */
#pragma once

#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/cards/card.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace gaudi::base {

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
     * @param lock  The owner's; taken when the card is a new one.
     * @param map   Called with a mapping to fill when nothing is known of the
     *              card: has the driver map the memory, and gives an @ref
     *              answer.
     * @return 0 or -errno.
     */
    template <typename Map>
    int va_on(const card &user, std::mutex &lock, Map &&map, uint64_t &va_p)
    {
        const entry *known = find(user);
        if (known == nullptr) {
            const std::lock_guard<std::mutex> guard(lock);
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
    std::atomic<entry *> first_{nullptr};
};

} // namespace gaudi::base
