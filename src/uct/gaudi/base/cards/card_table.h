/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Opens the cards of this process, and knows which ones are.
 *
 * One table per process. Cards are opened when the first memory domain opens,
 * and closed when the last one lets go of them (card.h).
 *
 * Cards that the application has open are used through its descriptors, and
 * never closed by us. When it closes one, the card is lost: what is left of it
 * refuses to do anything. When it opens the card again, that is another card to
 * the table. A card that we opened first is lent to the application.
 *
 * Knows nothing of memory: the room above hears of cards by card_events.h.
 *
 * Threads: any. Locks:
 *   opening_lock_ one opening of cards at a time, with its waits for cards in
 *                 reset; before lock_. What neither opens cards nor asks why
 *                 there is none does not take it
 *   lock_         opening, closing, and what the application does; held across
 *                 driver calls, which may enter UCM. Not while cards in reset
 *                 are waited for, except by who has some open already. Nothing
 *                 that UCM calls takes it, nor does what finds a card or tells
 *                 memory types
 * and none is held when UCX is told of what came of it.
 */
#pragma once

#include "hlthunk_shim/cards/driver.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/cards/reset_wait.h"
#include "uct/gaudi/base/ucx/config.h"
#include "util/process.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
    std::optional<int> kind{};    /**< see shim::card::is_of; none: any */
    bool of_framework = false;    /**< a framework's runtime asks */
};

class card_table {
public:
    /** The table of this process. */
    static card_table &instance()
    {
        return util::of_this_process<card_table>();
    }

    /** Whether the box has a card, open or busy. Takes none. */
    [[nodiscard]] bool any_card();

    /** Hold the cards of this process; open those that it may see if there are
     *  none. Waits for cards in reset, if it takes these
     *  (UCX_GAUDI_RESET_TIMEOUT).
     *  @param cards_p  Filled after a failure, too: it then holds the cards
     *                  that this process opens later.
     *  @param chosen   Name, index or bus id of a card that is to be open then.
     *                  Where UCX_GAUDI_DEVICES leaves it to us which one is
     *                  opened, it is this one; it is added to those that are
     *                  open already. NULL: any will do.
     *  @return UCS_ERR_NO_DEVICE without a driver or card, UCS_ERR_BUSY when
     *  all cards that were wished for are in use. Of a chosen one it was
     *  logged. */
    [[nodiscard]] ucs_status_t open(held_cards &cards_p,
                                    const char *chosen = nullptr);

    /** Hold those that somebody has opened, if any. Takes no lock. */
    [[nodiscard]] held_cards cards()
    {
        return held_cards(opened_.join() ? &opened_ : nullptr);
    }

    /** Somebody could not have Gaudi memory: say why there is no card, at
     *  warning level. Once per process; nothing when the log has the reason
     *  already. */
    void explain_missing_card();

    /** Log what is wrong with a setting, unless the log has it already. */
    ucs_status_t report_setting(const std::string &text)
    {
        const std::lock_guard<std::mutex> guard(opening_lock_);
        return refuse_setting(text);
    }
    /** As messages about it begin. */
    [[nodiscard]] static std::string setting_of_devices();

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
    /* One opening, and how far it has come. */
    struct attempt;
    using card_list = std::vector<std::unique_ptr<card>>;

    /* Under both locks. */
    ucs_status_t open_wished(const char *chosen, const held_cards &cards,
                             std::unique_lock<std::mutex> &guard);
    [[nodiscard]] ucs_status_t choose(attempt &now, const char *chosen);
    [[nodiscard]] ucs_status_t judge_choice(const attempt &now,
                                            const char *chosen);
    void open_wanted(attempt &now, std::unique_lock<std::mutex> &guard);
    [[nodiscard]] bool wait_for_reset(std::unique_lock<std::mutex> &guard,
                                      bool unlocked);
    void note_failure(const shim::visible_card &failed, int error);
    [[nodiscard]] ucs_status_t judge(const attempt &now);
    [[nodiscard]] bool is_news(const std::string &text);
    ucs_status_t refuse_setting(const std::string &text);
    [[nodiscard]] std::string
    why_nothing_was_tried(const shim::driver &driver) const;

    /* Under lock_. */
    [[nodiscard]] bool settle(std::unique_lock<std::mutex> &guard,
                              patience waiting, held_cards &cards_p);
    void publish(card_list fresh);
    void adopt_open_cards(const shim::driver &driver,
                          const std::vector<shim::card_info> &box,
                          const shim::visible_cards &visible,
                          const held_cards &known, card_list &adopted);
    void forget_node(const shim::node_identity &node);
    void note_adopted(const shim::node_identity &node);
    void look_for_card_of_ucx();
    [[nodiscard]] bool hand_over(card &wanted);
    void drop_closed(const held_cards &cards);
    static void lose(card &lost);
    static void return_lent(card &lent);

    void note_cards(patience waiting);
    friend class open_cards;
    void close();

    /* Do something with the cards that are open under lock_, then tell UCX what
     * came of it. */
    template <typename Work>
    void under_lock(Work &&work, patience waiting = patience::any)
    {
        held_cards cards; /* goes when no lock is held */
        card_events::news news;
        {
            std::unique_lock<std::mutex> guard(lock_, std::defer_lock);
            if (waiting == patience::any) {
                guard.lock();
            } else if (!guard.try_lock()) {
                return;
            }
            if (!settle(guard, waiting, cards)) {
                return;
            }
            work(cards);
            news = card_events::take_news();
        }
        card_events::tell(news);
    }

    std::mutex opening_lock_;
    reset_wait reset_wait_{config().reset_timeout}; /* under it, as */
    missing_card missing_;       /* of the last time that cards were opened */
    std::set<std::string> told_; /* what the log has of missing cards */
    bool explained_ = false;     /* why there is none */

    std::mutex lock_;
    std::optional<util::in_use> in_use_; /* until they are closed: */
    open_cards opened_{*this};
    std::condition_variable closed_;
    std::atomic<bool> acquiring_{false}; /* a framework, when last looked at */
    std::atomic<bool> has_card_of_ucx_{false};
};

/** While one lives, this thread takes no notice of what the application does
 *  with cards: it is in a call of somebody else's for the driver, maybe of a
 *  framework's runtime, which is not to be asked then, or copies what somebody
 *  with the table's lock may wait for. */
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

} // namespace gaudi::base
