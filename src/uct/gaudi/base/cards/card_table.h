/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Opens the cards of this process, and knows which ones are open.
 *
 * One table per process. Cards are opened when the first memory domain opens,
 * and closed when the last one lets go of them (card.h).
 *
 * Cards that the application has open are *adopted*: used through its
 * descriptors, and never closed by us. When it closes one, the card is lost: it
 * refuses to do anything from then on. Opened again, it is another card to the
 * table. A card that we opened first is *lent* to the application.
 *
 * Any thread. One lock, for lists and flags only: nothing is called under it
 * that waits, walks /proc, enters the driver or leads to UCX. What takes long
 * is done between two times under the lock:
 *
 *   opening_   one thread opens cards, and may wait for cards in reset. Others
 *              that open cards wait for it, and nobody else
 *   in_driver_ one thread opens or adopts a card right now. Else a card that we
 *              have just opened would look like one of the application's
 *
 * The hook of hlthunk_close waits for neither, that of hlthunk_open for the
 * second. Both wait for the closing of all cards, when the last user has gone.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/ucx/config.h"
#include "util/process.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::base {

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
     *  none. Waits for cards in reset, up to UCX_GAUDI_RESET_TIMEOUT.
     *  @param cards_p  Filled after a failure, too: it then holds the cards
     *                  that this process opens later.
     *  @param chosen   Name, index or bus id of a card that is to be open then.
     *                  Where UCX_GAUDI_DEVICES leaves it to us which one is
     *                  opened, it is this one; it is added to those that are
     *                  open already. NULL: any will do.
     *  @return UCS_ERR_NO_DEVICE without a driver or card, UCS_ERR_BUSY when
     *  all wanted cards are in use. The failure of a chosen one is logged. */
    [[nodiscard]] ucs_status_t open(held_cards &cards_p,
                                    const char *chosen = nullptr);

    /** Hold those that somebody has opened, if any. Takes no lock. */
    [[nodiscard]] held_cards cards()
    {
        return held_cards(opened_.join() ? &opened_ : nullptr);
    }

    /** Gaudi memory was asked for in vain: log why there is no card, as a
     *  warning. Once per process; nothing when the log has the reason. UCX
     *  opens all memory domains in every process, so that opening none is not
     *  worth a warning by itself. */
    void explain_missing_card();

    /** Log what is wrong with a setting, unless the log has it already. */
    ucs_status_t report_setting(const std::string &text);
    /** As messages about it begin. */
    [[nodiscard]] static std::string setting_of_devices();

    /* What the hooks of the driver report; each on the thread that made the
     * call. */

    /** The application has opened a compute node, perhaps one that it closed
     *  unseen before. A framework's runtime goes on to acquire it, and it is
     *  adopted when that is done. */
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

    /** Whether to wait for another thread that opens or adopts a card. What
     *  tells memory types does not. */
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
    friend class open_cards;

    using card_list = open_cards::owned_cards;
    using clock     = std::chrono::steady_clock;
    class opening;

    /* Has one of the flags, for as long as this object lives. */
    class turn {
    public:
        turn(card_table &of, bool &flag, patience waiting = patience::any);
        ~turn();
        turn(const turn &)            = delete;
        turn &operator=(const turn &) = delete;

        explicit operator bool() const { return flag_ != nullptr; }

    private:
        card_table &of_;
        bool *flag_ = nullptr;
    };

    /* Without the lock. */
    ucs_status_t open_wanted(const char *chosen, const held_cards &open);
    ucs_status_t fail(ucs_status_t status, ucs_log_level_t level,
                      const std::string &why);
    [[nodiscard]] std::shared_ptr<card>
    make_card(const shim::visible_card &self,
              std::unique_ptr<shim::card> device,
              const shim::node_identity &node, bool adopted);
    [[nodiscard]] card_list adopt(const shim::driver &driver,
                                  const std::vector<shim::card_info> &box,
                                  const shim::visible_cards &visible);
    void announce(const card_list &added);
    void note_cards(patience waiting);
    void drop_closed();
    void close();

    /* Under the lock. */
    [[nodiscard]] held_cards settle(std::unique_lock<std::mutex> &guard);
    [[nodiscard]] card_list list_all() const;
    [[nodiscard]] bool is_ours(const shim::node_identity &node) const;
    template <typename Condition>
    [[nodiscard]] card_list end_adopted(bool is_closed, Condition &&is_it);
    void forget_node(const shim::node_identity &node);

    std::mutex lock_;
    std::condition_variable changed_; /* opening_, in_driver_ or in_use_ */
    bool opening_   = false;
    bool in_driver_ = false;
    std::optional<util::in_use> in_use_; /* until the cards are closed: */
    open_cards opened_{*this};
    /* Opened, and published when all wanted ones are; in their order. */
    std::map<size_t, std::shared_ptr<card>> pending_;
    std::vector<int> closing_; /* descriptors, by the application, right now */
    std::vector<shim::node_identity> nodes_of_ucx_;
    std::atomic<bool> has_card_of_ucx_{false};
    std::atomic<bool> acquiring_{false}; /* a framework, when last looked at */

    std::string failure_;          /* why the last opening failed */
    bool is_failure_told_ = false; /* as a warning or an error */
    bool explained_       = false;
    std::optional<clock::time_point> gave_up_; /* a wait for a reset */
};

/** While one lives, this thread is in a hook of a driver function, perhaps
 *  called by SynapseAI, which must not be asked about its card then: what the
 *  application has open is not looked at. */
class hook_scope {
public:
    hook_scope() { ++depth_; }
    ~hook_scope() { --depth_; }
    hook_scope(const hook_scope &)            = delete;
    hook_scope &operator=(const hook_scope &) = delete;

    /** How many there are: a library calls its own functions. */
    [[nodiscard]] static unsigned depth() { return depth_; }

private:
    static inline thread_local unsigned depth_ = 0;
};

} // namespace gaudi::base
