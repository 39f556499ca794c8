/**
 * The cards of this process.
 *
 * One table per process, shared by all memory domains. Cards are opened when
 * the first memory domain opens and closed when the last one goes. A forked
 * child gets an empty table of its own: the file descriptors that it inherited
 * are closed, and it never touches what the parent has on the cards.
 *
 * Cards that the application has open are used through its descriptors, and
 * never closed by us. When it closes one, the card is lost: what is left of it
 * refuses to do anything. When it opens the card again, that is another card to
 * the table. A card that we opened first is lent to the application.
 *
 * Knows nothing of memory: rooms that keep something for the cards hear of them
 * by card_events.h.
 *
 * Threads: any. Locks:
 *   opening_lock_ one opening of cards at a time, with its waits for cards in
 *                 reset; before cards_lock_. What neither opens cards nor asks
 *                 why there is none does not take it
 *   cards_lock_   opening, closing; held across driver calls, which may enter
 *                 UCM. Not while cards in reset are waited for, except by who
 *                 has some open already. Nothing that UCM calls takes it, nor
 *                 do join, a close that is not the last one, and what tells
 *                 memory types
 * and none is held when deferred work is done.
 */
#pragma once

#include "hlthunk_shim/driver.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/cards/reset_wait.h"
#include "uct/gaudi/base/ucx/config.h"
#include "util/process.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace gaudi::base {

/** Why a process has no card, for whoever asks for Gaudi memory. UCX opens all
 *  memory domains in every process, so a card that cannot be had is no news by
 *  itself. It is when somebody wants memory of it: the reason is kept for that
 *  time. Settings that are wrong are told at once. */
struct missing_card {
    std::string why;                       /**< empty: nothing was in the way */
    std::vector<shim::visible_card> taken; /**< by other processes; follow the
                                          reason, if there is one */
    bool told = false;                     /**< the log has it already */
};

/** Which card an application asks the driver for. */
struct card_wish {
    const char *bus_id = nullptr; /**< NULL: any, or by module */
    int64_t module_id  = -1;      /**< -1: any, or by bus id */
    std::optional<int> kind;      /**< see shim::card::is_of; none: any */
    bool of_framework = false;    /**< a framework's runtime asks */
};

class card_hold;

class card_table {
public:
    /** The table of this process; a forked child has another than its parent.
     */
    static card_table &instance();

    /** Whether the box has a card, open or busy. Takes none. */
    [[nodiscard]] bool any_card();

    /** Open the cards that this process may see, or count one more user. Waits
     *  for cards in reset, if it takes these (UCX_GAUDI_RESET_TIMEOUT).
     *  @param chosen  Name, index or bus id of a card that is to be open then.
     *                 Where UCX_GAUDI_DEVICES leaves it to us which one is
     *                 opened, it is this one; it is added to those that are
     *                 open already. NULL: any will do.
     *  @return UCS_ERR_NO_DEVICE without a driver or card, UCS_ERR_BUSY when
     *  all cards that were wished for are in use. Of a chosen one it was
     *  logged. */
    [[nodiscard]] ucs_status_t open(const char *chosen = nullptr);

    /** Count one more user of the cards, see card_hold. Takes no lock.
     *  @return false when none is open; then there is nothing to undo. */
    [[nodiscard]] bool join();

    /** Undo one open, or one join. */
    void close();

    /** Give a hold its part of the cards, now or as soon as some are open. */
    void await(card_hold &hold);
    /** No more. What it got stays its own. */
    void stop_waiting(const card_hold &hold);

    /** Somebody could not have Gaudi memory: say why there is no card, at
     *  warning level. Once per process; nothing when the log has the reason
     *  already. */
    void explain_missing_card();

    /** The open cards, lost ones among them; valid between open and close. */
    [[nodiscard]] std::span<const std::unique_ptr<card>> cards() const
    {
        return {cards_.data(), card_count_.load(std::memory_order_acquire)};
    }

    /** The first open card that a condition is true of, or nullptr. */
    template <typename Condition>
    [[nodiscard]] card *find_open(Condition &&is_it) const
    {
        for (const auto &candidate : cards()) {
            if (!candidate->is_lost() && is_it(*candidate)) {
                return candidate.get();
            }
        }
        return nullptr;
    }

    /** One that is not lost; nullptr: there is none. */
    [[nodiscard]] card *first_card() const
    {
        return find_open([](const card &) { return true; });
    }

    /** The one that is not lost and has a name ("gaudi1"), an index ("1") or a
     *  bus id; nullptr: there is none.
     *  @param name  NULL: the first card. */
    [[nodiscard]] card *find_named(const char *name) const;

    /** The card behind an open node, or nullptr. Takes no lock. It may be one
     *  that is closing: it stays until all rooms have been told of that, so who
     *  asks keeps what it does with it and that call apart by a lock. */
    [[nodiscard]] card *find_card(const shim::node_identity &node) const;

    /* What the hooks of the driver report; each on the thread that made the
     * call. */

    /** The application has opened a compute node, perhaps one that it closed
     *  behind our back before. A framework's runtime goes on to acquire it, and
     *  it is adopted when that is done. */
    void application_opened(int fd, bool by_framework);
    /** UCX's own module has opened a compute node for itself: that card is in
     *  use, as if by another process, until it closes it. */
    void ucx_opened(int fd);
    /** Whether that has one now. Costs a load. */
    [[nodiscard]] bool has_card_of_ucx() const { return has_card_of_ucx_; }
    /** It is about to close a descriptor, whatever that is; */
    void application_closing(int fd);
    /** and has done so. */
    void application_closed(int fd);

    /** Let the application use a card that we opened before it could. A
     *  framework takes it over, and needs all of its memory: we use it no more
     *  until it has been acquired, when it is another card.
     *  @return A new descriptor of the open card, close-on-exec, owned by the
     *  caller; -1 when none of ours is wished for, or the application has it
     *  already. */
    [[nodiscard]] int lend(const card_wish &wish);

    /** Whether to wait for those who open cards, maybe until a reset is over.
     *  What tells memory types has no patience. */
    enum class patience { any, none };

    /** Take notice of cards that the application has opened or closed without
     *  a hook to tell, or that a framework has acquired. */
    void note_application_cards(patience waiting = patience::any);

    /** The same if a framework was acquiring a card; else it costs a load. */
    void note_acquired_cards(patience waiting = patience::any)
    {
        if (acquiring_.load(std::memory_order_relaxed)) {
            note_application_cards(waiting);
        }
    }

private:
    /* Of the card with the same index in cards_. */
    struct card_state {
        shim::node_identity node;
        bool adopted = false;
        bool closed  = false; /* by the application that had opened it */
        int lent     = -1; /* the application's duplicate of our descriptor */
    };

    /* One opening, and how far it has come. */
    struct attempt;

    /* Under both locks. */
    ucs_status_t open_cards(const char *chosen, deferred &later,
                            std::unique_lock<std::mutex> &cards_guard);
    [[nodiscard]] ucs_status_t choose(attempt &now, const char *chosen);
    [[nodiscard]] ucs_status_t judge_choice(const attempt &now,
                                            const char *chosen);
    void open_wanted(attempt &now, deferred &later,
                     std::unique_lock<std::mutex> &cards_guard);
    void note_failure(const shim::visible_card &failed, int error);
    [[nodiscard]] ucs_status_t judge(const attempt &now);
    [[nodiscard]] bool
    wait_for_reset(std::unique_lock<std::mutex> &cards_guard);

    /* Under opening_lock_. */
    [[nodiscard]] bool is_news(const std::string &text);
    ucs_status_t refuse_setting(const std::string &text);
    [[nodiscard]] std::string
    why_nothing_was_tried(const shim::driver &driver) const;

    [[nodiscard]] bool leave_to_others();

    /* Under cards_lock_. */
    void add_card(const shim::visible_card &info,
                  std::unique_ptr<shim::card> opened,
                  const shim::node_identity &node, bool adopted,
                  deferred &later);
    void adopt_open_cards(const shim::driver &driver,
                          const std::vector<shim::card_info> &box,
                          const shim::visible_cards &visible, deferred &later);
    void forget_node(const shim::node_identity &node);
    void look_for_card_of_ucx();
    [[nodiscard]] bool is_known(const shim::node_identity &node) const;
    [[nodiscard]] bool hand_over(size_t index, deferred &later);
    void note_cards(patience waiting);
    void admit_waiting();
    void drop_closed(deferred &later);
    void lose(size_t index, deferred &later);
    void return_lent(size_t index, deferred &later);
    void close_cards();

    static void run(const deferred &later);

    /* Do something under cards_lock_, then what that puts off. */
    template <typename Work>
    void under_lock(Work &&work)
    {
        deferred later;
        {
            std::lock_guard<std::mutex> guard(cards_lock_);
            work(later);
        }
        run(later);
    }

    std::mutex opening_lock_;
    reset_wait reset_wait_{config().reset_timeout}; /* under it, as */
    missing_card missing_;       /* of the last time that cards were opened */
    std::set<std::string> told_; /* what the log has of missing cards */
    bool explained_ = false;     /* why there is none */

    std::mutex cards_lock_;
    std::atomic<unsigned> users_{0}; /* from and to 0: under cards_lock_ */
    std::array<std::unique_ptr<card>, max_cards> cards_;
    std::array<card_state, max_cards> states_; /* node: constant when counted */
    std::atomic<size_t> card_count_{0};
    std::vector<card_hold *> waiting_;   /* while no card is open */
    std::atomic<bool> acquiring_{false}; /* a framework, when last looked at */
    std::atomic<bool> has_card_of_ucx_{false};
};

/** While one lives, this thread is in a call of somebody else's for the driver,
 *  maybe of a framework's runtime, which is not to be asked then. */
class reporting_scope {
public:
    reporting_scope() { ++depth_; }
    ~reporting_scope() { --depth_; }
    reporting_scope(const reporting_scope &)            = delete;
    reporting_scope &operator=(const reporting_scope &) = delete;

    [[nodiscard]] static bool is_reporting() { return depth_ > 0; }

private:
    static inline thread_local unsigned depth_ = 0;
};

/**
 * A hold on the open cards of this process: none is closed while it lasts.
 *
 * Whoever keeps a pointer to a card, or what belongs to one, has a hold for as
 * long: a memory domain, which opens cards or waits until somebody does, and
 * whatever may be used beside one that has none. What a forked child inherits
 * is a hold on the parent's cards, and its end lets nothing go there.
 *
 * Any thread may join; the rest is for one thread at a time.
 */
class card_hold {
public:
    card_hold() = default;
    ~card_hold() { release(); }
    card_hold(const card_hold &)            = delete;
    card_hold &operator=(const card_hold &) = delete;

    /** Open the cards, see card_table::open. Any thread; the hold is one. */
    [[nodiscard]] ucs_status_t open(const char *chosen = nullptr);

    /** The same; if no card can be had, hold those that this process opens
     *  later, from then on. Once, until it is released. */
    [[nodiscard]] ucs_status_t open_or_wait();

    /** Whether it holds cards now. */
    [[nodiscard]] bool holds() const
    {
        return holder_.load(std::memory_order_acquire) == own_mark();
    }

    /** Hold the cards that somebody has opened. Costs a load when that is so
     *  already.
     *  @return false when none is open. */
    [[nodiscard]] bool join();

    /** End it. The last one of the process closes the cards. */
    void release();

    /** Take over the hold of another one, if that has one. */
    void take(card_hold &other)
    {
        release();
        holder_.store(other.holder_.exchange(nothing));
    }

    /** Never close the cards: something refers to them that cannot go. */
    void abandon() { holder_.store(nothing); }

private:
    friend class card_table;

    static constexpr unsigned nothing = 0;

    /* Of the process that holds: one more than its generation. */
    static unsigned own_mark() { return util::process_generation() + 1; }

    /* @return false when it holds them already, by one user more. */
    [[nodiscard]] bool begin()
    {
        return holder_.exchange(own_mark()) != own_mark();
    }

    std::atomic<unsigned> holder_{nothing};
    bool waits_ = false; /* or did */
};

} // namespace gaudi::base
