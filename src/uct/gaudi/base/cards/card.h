/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The cards that this process has open, and their users.
 *
 *   held_cards --> open_cards --> card --> card_part (its pool of memory)
 *
 * Each object that keeps a pointer to a card, or to what belongs to one, has a
 * held_cards as well. The last one to go closes all cards, on its thread, which
 * must have no lock of ours.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/discovery/open_nodes.h"
#include "hlthunk_shim/discovery/visible_cards.h"
#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/ucx/ucx.h"

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

/** Per-card data of the memory layer; destroyed before any card is closed. */
class card_part {
public:
    virtual ~card_part() = default;
};

/** All cards that the process has open, none or more; part of the card table.
 *  Read without a lock: each list that was published stays until they are
 *  closed. */
class open_cards {
public:
    using owned_cards = std::vector<std::shared_ptr<card>>;

    explicit open_cards(card_table &of) : table_(of) {}

    /** While they are held. */
    [[nodiscard]] std::span<card *const> all() const
    {
        const auto *newest = newest_.load(std::memory_order_acquire);
        return (newest != nullptr) ? std::span<card *const>(*newest)
                                   : std::span<card *const>();
    }

    /** Hold them if somebody does. */
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
            close();
        }
    }

    /* Under the card table's lock: */
    void publish(std::shared_ptr<card> added);
    [[nodiscard]] const owned_cards &owned() const { return owned_; }
    /** Empty the list: nobody holds them. */
    [[nodiscard]] owned_cards take();

private:
    void close();

    card_table &table_;
    std::atomic<unsigned> holds_{0};
    owned_cards owned_;
    std::forward_list<std::vector<card *>> lists_;
    std::atomic<const std::vector<card *> *> newest_{nullptr};
};

/** A hold on the open cards of this process: none is closed while it lasts.
 *  Cards that are opened later are among them from then on. */
class held_cards {
public:
    held_cards() = default;
    /** @param cards  Held, once, for this. */
    explicit held_cards(open_cards *cards) : cards_(cards) {}
    held_cards(const held_cards &other) : cards_(other.cards_.get())
    {
        if (cards_ != nullptr) {
            cards_->hold();
        }
    }
    held_cards(held_cards &&other) noexcept = default;
    held_cards &operator=(held_cards other) noexcept
    {
        std::swap(cards_, other.cards_);
        return *this;
    }
    ~held_cards() = default;

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
    struct letting_go {
        void operator()(open_cards *cards) const { cards->let_go(); }
    };

    std::unique_ptr<open_cards, letting_go> cards_;
};

/** A card that is open. Immutable, but for its end and the card table's
 *  flags. */
class card {
public:
    /**
     * @param self     What is known of the card, and its name.
     * @param node     The file of its descriptor.
     * @param adopted  The application has opened it, and closes it.
     * @param home     The cards that it will be one of.
     */
    card(const shim::visible_card &self, std::unique_ptr<shim::card> device,
         const shim::node_identity &node, bool adopted, open_cards &home);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] const shim::card_info &info() const { return info_; }
    [[nodiscard]] pci_address address() const { return address_; }
    [[nodiscard]] shim::card &device() const { return *device_; }
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
        home_.hold();
        return held_cards(&home_);
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
    friend shim::port_device *ports_of(const card &of, std::string &why_p);

    const shim::card_info info_;
    const std::string name_;
    const pci_address address_;
    std::unique_ptr<shim::card> device_;
    mutable card_ports ports_; /* goes before it */
    const shim::node_identity node_;
    const bool adopted_;
    open_cards &home_;
    const ucs_sys_device_t sys_device_;
    mutable std::atomic<bool> failed_since_loss_{false};
    size_t place_ = 0;
    std::unique_ptr<card_part> part_;

    /* Under the card table's lock: */
    bool closed_ = false; /* by the application */
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
