/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The cards that this process has open, and who holds them.
 *
 *   held_cards --> open_cards --> card --> card_part (its pool of memory)
 *
 * Whoever keeps a pointer to a card, or what belongs to one, has a held_cards
 * for as long: a memory domain, a cache of registrations, an engine, memory, an
 * import. The last one to go closes all cards, on its thread, and must have no
 * lock that is taken under the card table's.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "hlthunk_shim/cards/visible_cards.h"
#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <algorithm>
#include <atomic>
#include <forward_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gaudi::base {

class card;
class card_table;

/** The place of a card on the PCI bus: domain, bus, device and function, from
 *  the top. */
enum class pci_address : uint32_t { unknown = 0 };

/** @return unknown for what is none, or has a longer domain. */
[[nodiscard]] pci_address to_pci_address(const std::string &bus_id);

/** What the rooms above keep for a card; goes before all cards do. */
class card_part {
public:
    virtual ~card_part() = default;
};

/** All cards that the process has open, none or more; the card table's. Read
 *  without a lock: each list that was published stays until they are closed. */
class open_cards {
public:
    explicit open_cards(card_table &of) : table_(of) {}

    /** While they are held. */
    [[nodiscard]] std::span<card *const> all() const
    {
        const auto *newest = newest_.load(std::memory_order_acquire);
        return (newest != nullptr) ? std::span<card *const>(*newest)
                                   : std::span<card *const>();
    }

    /** Hold them if somebody does. Takes no lock. */
    [[nodiscard]] bool join()
    {
        unsigned holds = holds_.load(std::memory_order_relaxed);
        while ((holds != 0) && !holds_.compare_exchange_weak(
                                   holds, holds + 1, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {}
        return holds != 0;
    }

    /** Hold them: the caller does so already, or opens them. */
    void hold() { holds_.fetch_add(1, std::memory_order_release); }

    /** The last one closes them. */
    void let_go()
    {
        if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            end();
        }
    }

    /* Under the card table's lock: */

    /** One more card; */
    void publish(std::unique_ptr<card> added);
    /** and all of them closed. */
    void close();

private:
    using card_list = std::vector<card *>;

    void end();

    card_table &table_;
    std::atomic<unsigned> holds_{0};
    std::vector<std::unique_ptr<card>> cards_;
    std::forward_list<card_list> lists_;
    std::atomic<const card_list *> newest_{nullptr};
};

/** A hold on the open cards of this process: none is closed while it lasts.
 *  Cards that are opened later are among them from then on. */
class held_cards {
public:
    held_cards() = default;
    /** @param cards  Held, once, for this. */
    explicit held_cards(open_cards *cards) : cards_(cards) {}
    held_cards(const held_cards &other) : cards_(other.cards_)
    {
        if (cards_ != nullptr) {
            cards_->hold();
        }
    }
    held_cards(held_cards &&other) noexcept
        : cards_(std::exchange(other.cards_, nullptr))
    {}
    held_cards &operator=(held_cards other) noexcept
    {
        std::swap(cards_, other.cards_);
        return *this;
    }
    ~held_cards()
    {
        if (cards_ != nullptr) {
            cards_->let_go();
        }
    }

    /** Whether it holds anything: what has no card yet, too. */
    explicit operator bool() const { return cards_ != nullptr; }

    /** All of them, lost ones among them, in the order of their opening. */
    [[nodiscard]] std::span<card *const> all() const
    {
        return (cards_ != nullptr) ? cards_->all() : std::span<card *const>();
    }

    [[nodiscard]] bool empty() const { return all().empty(); }

    /** The first one that is not lost and that a condition is true of, or
     *  nullptr. */
    template <typename Condition>
    [[nodiscard]] card *find_open(Condition &&is_it) const;

    /** One that is not lost; nullptr: there is none. */
    [[nodiscard]] card *first() const
    {
        return find_open([](const card &) { return true; });
    }

    /** The one that is not lost and is called so, or nullptr.
     *  @param name  NULL: the first card. */
    [[nodiscard]] card *find_named(const char *name) const;

private:
    friend class card_table;

    open_cards *cards_ = nullptr;
};

/** A card that is open. Immutable, but for what the driver finds out and what
 *  the card table notes. */
class card {
public:
    /**
     * @param self     What is known of the card, and its name.
     * @param node     What the application knows it by, if it has it.
     * @param adopted  The application has opened it, and closes it.
     */
    card(const shim::visible_card &self, std::unique_ptr<shim::card> device,
         const shim::node_identity &node, bool adopted);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] const shim::card_info &info() const { return info_; }
    [[nodiscard]] pci_address address() const { return address_; }
    [[nodiscard]] shim::card &device() const { return *device_; }
    /** See @ref ports_of, in routes.h. */
    [[nodiscard]] card_ports &ports() const { return ports_; }
    [[nodiscard]] ucs_sys_device_t sys_device() const { return sys_device_; }
    [[nodiscard]] const shim::node_identity &node() const { return node_; }
    [[nodiscard]] bool is_adopted() const { return adopted_; }

    /** Of it among all that are open. */
    [[nodiscard]] size_t place() const { return place_; }

    /** What card_events::make_part gave. */
    [[nodiscard]] card_part &part() const { return *part_; }

    /** Hold all cards. The caller does so already. */
    [[nodiscard]] held_cards hold() const
    {
        home_->hold();
        return held_cards(home_);
    }

    /** Whether it has a name ("gaudi1"), an index ("1") or a bus id. */
    [[nodiscard]] bool is_called(const char *name) const;

    /** Whether the application closed it, or it was reset or removed. It stays
     *  as long as the others are open, and does nothing. */
    [[nodiscard]] bool is_lost() const { return device_->is_lost(); }

    /** The level of a failure on this card: of those on a card that is lost
     *  the first is an error, the others add nothing. Each call is for one
     *  failure, and UCX's macros may evaluate an argument twice. */
    [[nodiscard]] ucs_log_level_t failure_level() const
    {
        return (is_lost() && failed_since_loss_.exchange(true))
                   ? UCS_LOG_LEVEL_DIAG
                   : UCS_LOG_LEVEL_ERROR;
    }

private:
    friend class card_table;
    friend class open_cards;

    const shim::card_info info_;
    const std::string name_;
    const pci_address address_;
    std::unique_ptr<shim::card> device_;
    mutable card_ports ports_; /* goes before it */
    const shim::node_identity node_;
    const bool adopted_;
    mutable std::atomic<bool> failed_since_loss_{false};
    ucs_sys_device_t sys_device_ = UCS_SYS_DEVICE_ID_UNKNOWN;
    open_cards *home_            = nullptr;
    size_t place_                = 0;
    std::unique_ptr<card_part> part_;

    /* The card table's, under its lock. */
    bool closed_ = false; /* by the application that had opened it */
    int lent_    = -1;    /* the application's duplicate of our descriptor */
};

template <typename Condition>
card *held_cards::find_open(Condition &&is_it) const
{
    for (card *each : all()) {
        if (!each->is_lost() && is_it(*each)) {
            return each;
        }
    }
    return nullptr;
}

/**
 * The CPUs near a card.
 *
 * @param of    The card; nullptr: none.
 * @param cpus  Set to them; to all when they are not known.
 */
void find_local_cpus(const card *of, ucs_cpu_set_t &cpus);

} // namespace gaudi::base
