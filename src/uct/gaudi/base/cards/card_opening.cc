/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the card table that opens cards, and tells why there is none. */
#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/device_list.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace gaudi::base {

namespace {

/* Why no card was opened, of so many visible ones of the box, of which so many
 * are taken; the log has what is wrong with the others. */
std::string why_none(size_t visible, size_t busy, size_t box)
{
    if (visible == 0) {
        return "HABANA_VISIBLE_DEVICES hides all " + std::to_string(box) +
               " cards of this machine";
    }
    const std::string those  = (visible < box) ? "that it may see " : "";
    const std::string number = std::to_string(visible);
    if (visible == 1) {
        return "the only card " + those + "is taken";
    }
    return ((busy == visible) ? "all " : std::to_string(busy) + " of ") +
           number + " cards " + those + "are taken";
}

/* Who has cards now: "gaudi0 by pid 12 (program); ...". Looks through /proc. */
std::string describe_taken(const shim::driver &driver,
                           const std::vector<shim::visible_card> &taken)
{
    std::string text;
    if (taken.empty()) {
        return text;
    }
    const shim::holders all = shim::find_holders(driver.own_dev());
    (void)shim::visit_cards(driver, [&](unsigned number, int fd,
                                        const std::string &bus_id) {
        const auto found = std::ranges::find(
            taken, bus_id, [](const auto &one) { return one.info.bus_id; });
        if (found == taken.end()) {
            return;
        }
        const auto seen = shim::holders_of(all, driver.own_dev(), number);
        const bool free =
            seen.empty() && !shim::is_taken(driver, fd).value_or(true);
        text +=
            (text.empty() ? "" : "; ") + found->name() + " by " +
            (free ? "a process that has ended since" : shim::describe(seen));
    });
    return text;
}

} // namespace

struct card_table::attempt {
    const shim::driver &driver;
    const held_cards &open; /* already */
    const std::vector<shim::card_info> box;
    const std::string setting; /* as messages begin */
    shim::visible_cards visible;
    device_selection wanted;
    card_list fresh;     /* nobody finds these before all are there */
    bool chosen = false; /* by whoever opens, not by the setting */
    size_t got  = 0;

    [[nodiscard]] bool has_none() const
    {
        return open.empty() && fresh.empty();
    }

    /* Of those that are not lost. */
    template <typename Condition>
    [[nodiscard]] bool has(Condition &&is_it) const
    {
        return (open.find_open(is_it) != nullptr) ||
               std::any_of(fresh.begin(), fresh.end(),
                           [&](const auto &each) { return is_it(*each); });
    }
};

/* Whether the log does not have a line yet. Several memory domains open the
 * cards, one after the other, and all meet with the same. */
bool card_table::is_news(const std::string &text)
{
    return told_.insert(text).second;
}

std::string card_table::setting_of_devices()
{
    return "UCX_GAUDI_DEVICES=" + std::string(config().devices) + ": ";
}

ucs_status_t card_table::refuse_setting(const std::string &text)
{
    missing_.told = true;
    if (is_news(text)) {
        ucs_error("%s", util::to_printable(text).c_str());
    }
    return UCS_ERR_INVALID_PARAM;
}

/* Sleep a little, if the time for cards in reset is not over. Without a card
 * the application may open and close cards of its own meanwhile. With one it
 * could get ours, and return it, which has to wait until they have a user. */
bool card_table::wait_for_reset(std::unique_lock<std::mutex> &guard,
                                bool unlocked)
{
    const auto pause = reset_wait_.next_pause(reset_wait::clock::now());
    if (pause == reset_wait::clock::duration::zero()) {
        return false;
    }
    if (unlocked) {
        guard.unlock();
    }
    std::this_thread::sleep_for(pause);
    if (unlocked) {
        guard.lock();
    }
    return true;
}

ucs_status_t card_table::open_wished(const char *chosen,
                                     const held_cards &cards,
                                     std::unique_lock<std::mutex> &guard)
{
    missing_                   = {};
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        return UCS_ERR_NO_DEVICE;
    }
    attempt now{
        *loaded, cards, shim::list_cards(*loaded), setting_of_devices(), {},
        {},      {}};
    if (now.box.empty()) {
        ucs_debug("gaudi: the driver shows no card");
        return UCS_ERR_NO_DEVICE;
    }
    now.visible =
        shim::find_visible_cards(shim::visibility_variables::read(), now.box);
    if (!now.visible.error.empty()) {
        return refuse_setting(now.visible.error);
    }
    now.wanted = select_devices(config().devices, now.visible);
    if (!now.wanted.error.empty()) {
        return refuse_setting(now.setting + now.wanted.error);
    }
    if (chosen != nullptr) {
        const ucs_status_t status = choose(now, chosen);
        if (status != UCS_OK) {
            return status;
        }
    }
    open_wanted(now, guard);
    const bool found = (chosen == nullptr) || now.has([&](const card &each) {
        return each.is_called(chosen);
    });
    const ucs_status_t status = found ? judge(now) : judge_choice(now, chosen);
    if (status == UCS_OK) {
        publish(std::move(now.fresh));
    }
    return status;
}

/* Have a card be among those that are opened: in place of others where one of
 * several would do, and alone where the others had their turn. */
ucs_status_t card_table::choose(attempt &now, const char *chosen)
{
    const device_selection one = select_devices(chosen, now.visible);
    if (!one.named || (one.cards.size() != 1)) {
        const std::string why =
            one.error.empty()
                ? "'" + std::string(chosen) + "' does not name one card"
                : one.error;
        ucs_error("gaudi: %s", util::to_printable(why).c_str());
        missing_.told = true;
        return UCS_ERR_NO_DEVICE;
    }
    const std::vector<size_t> &may_open = now.wanted.cards;
    const size_t place                  = one.cards.front();
    if (std::find(may_open.begin(), may_open.end(), place) == may_open.end()) {
        ucs_error("%s%s is not among them", now.setting.c_str(),
                  now.visible.cards[place].name().c_str());
        missing_.told = true;
        return UCS_ERR_NO_DEVICE;
    }
    const auto opened = now.open.all();
    if (std::any_of(opened.begin(), opened.end(), [&](const card *open) {
            return open->is_lost() && !open->is_adopted() &&
                   (open->info().bus_id ==
                    now.visible.cards[place].info.bus_id);
        })) {
        ucs_error("%s was reset or removed: it cannot be opened again before "
                  "all cards of this process are closed (close UCX, and call "
                  "ucx_gaudi_close)",
                  now.visible.cards[place].name().c_str());
        missing_.told = true;
        return UCS_ERR_NO_DEVICE;
    }
    now.chosen = !now.open.empty() || (now.wanted.wanted < may_open.size());
    if (now.chosen) {
        now.wanted.cards  = {place};
        now.wanted.wanted = 1;
        now.wanted.named  = false;
    }
    return UCS_OK;
}

/* Why a chosen card was not opened. */
ucs_status_t card_table::judge_choice(const attempt &now, const char *chosen)
{
    const bool taken = !missing_.taken.empty();
    const std::string why =
        taken ? "taken: " + describe_taken(now.driver, missing_.taken)
              : missing_.why;
    ucs_error("gaudi: card %s was not opened%s%s",
              util::to_printable(chosen).c_str(), why.empty() ? "" : "; ",
              why.c_str());
    missing_.told = true;
    return taken ? UCS_ERR_BUSY : UCS_ERR_NO_DEVICE;
}

void card_table::open_wanted(attempt &now, std::unique_lock<std::mutex> &guard)
{
    /* What the application has open comes first: it is there on purpose. */
    const bool automatic =
        !now.chosen && (std::strcmp(config().devices, "auto") == 0);
    bool enough      = false;
    const auto adopt = [&] {
        drop_closed(now.open);
        adopt_open_cards(now.driver, now.box, now.visible, now.open, now.fresh);
        enough = automatic && !now.has_none();
    };
    adopt();
    /* A card in reset is tried again: at once when all are wanted, which come
     * in the user's order, else when the others have been tried. */
    const size_t visible       = now.wanted.cards.size();
    const bool all             = (now.wanted.wanted == visible);
    std::vector<size_t> places = now.wanted.cards;
    for (size_t i = 0;
         (i < places.size()) && (now.got < now.wanted.wanted) && !enough; ++i) {
        const size_t place             = places[i];
        const shim::visible_card &next = now.visible.cards[place];
        if (now.has([&](const card &open) {
                return open.is_adopted() &&
                       (open.device().bus_id() == next.info.bus_id);
            })) {
            ++now.got;
            continue;
        }
        std::unique_ptr<shim::card> opened;
        const int ret          = now.driver.open(next.info.bus_id, opened);
        const bool first_round = !all && (i < visible);
        const bool unlocked    = now.has_none();
        if ((ret == -EAGAIN) &&
            (first_round || wait_for_reset(guard, unlocked))) {
            if (!first_round && unlocked) {
                adopt();
            }
            if (all) {
                --i;
            } else {
                places.push_back(place);
            }
            continue;
        }
        if (ret != 0) {
            note_failure(next, ret);
            continue;
        }
        shim::node_identity node;
        (void)shim::identify(opened->fd(), node);
        now.fresh.push_back(
            std::make_unique<card>(next, std::move(opened), node, false));
        ucs_debug("%s (%s) opened", next.name().c_str(),
                  next.info.bus_id.c_str());
        ++now.got;
    }
}

void card_table::note_failure(const shim::visible_card &failed, int error)
{
    if (error == -EBUSY) {
        missing_.taken.push_back(failed);
        ucs_debug("%s (%s) is in use by another process", failed.name().c_str(),
                  failed.info.bus_id.c_str());
        return;
    }
    if (error == -ENOTSUP) {
        /* For whoever asks for memory of it. */
        missing_.why = failed.name() + " cannot be used: " +
                       shim::why_refused(*driver(), failed.info.bus_id);
        ucs_debug("%s", missing_.why.c_str());
        return;
    }
    const std::string text =
        failed.name() + " (" + failed.info.bus_id + ") cannot be opened: " +
        ((error == -EAGAIN) ? "it is in reset (UCX_GAUDI_RESET_TIMEOUT)"
                            : std::strerror(-error));
    if (is_news(text)) {
        ucs_warn("%s", text.c_str());
    }
}

/* Whether that was enough. */
ucs_status_t card_table::judge(const attempt &now)
{
    const device_selection &wanted = now.wanted;
    if (wanted.named && (now.got < wanted.wanted)) {
        const std::string text = now.setting + std::to_string(now.got) +
                                 " of " + std::to_string(wanted.wanted) +
                                 " cards are free";
        missing_.told = true;
        if (is_news(text)) {
            ucs_error("%s%s%s%s%s", text.c_str(),
                      missing_.taken.empty() ? "" : "; taken: ",
                      describe_taken(now.driver, missing_.taken).c_str(),
                      missing_.why.empty() ? "" : "; ", missing_.why.c_str());
        }
        return UCS_ERR_BUSY;
    }
    if (now.has_none()) {
        const size_t busy      = missing_.taken.size();
        const bool unsupported = !missing_.why.empty() && (busy == 0);
        ucs_diag("gaudi: none of %zu cards can be used, %zu are in use by "
                 "other processes%s%s",
                 wanted.cards.size(), busy, unsupported ? ": " : "",
                 unsupported ? missing_.why.c_str() : "");
        missing_.told = (busy == 0) && !wanted.cards.empty() && !unsupported;
        if (!unsupported) {
            missing_.why = why_none(wanted.cards.size(), busy, now.box.size());
        }
        return (busy > 0) ? UCS_ERR_BUSY : UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

/* Nobody has opened a card, or somebody has closed it again: UCX tries the
 * memory domains of transports that it leaves out. */
std::string card_table::why_nothing_was_tried(const shim::driver &driver) const
{
    if (shim::list_cards(driver).empty()) {
        return "the driver library " + driver.path() + " shows no card";
    }
    const std::string tls = find_allowed_transports().setting;
    return std::string("UCX has not opened gaudi_copy") +
           ((tls == "all") ? "" : " (UCX_TLS=" + util::to_printable(tls) + ")");
}

void card_table::explain_missing_card()
{
    const shim::driver *loaded = driver();
    missing_card missing;
    {
        std::lock_guard<std::mutex> guard(opening_lock_);
        if (std::exchange(explained_, true) || missing_.told) {
            return;
        }
        missing = missing_;
    }
    std::string why = missing.why;
    if (loaded == nullptr) {
        why = why_no_driver();
    } else if (why.empty()) {
        why = why_nothing_was_tried(*loaded);
    } else if (!missing.taken.empty()) {
        why += ": " + describe_taken(*loaded, missing.taken);
    }
    if (!why.empty()) {
        ucs_warn("gaudi: there is no Gaudi memory for this process: %s",
                 why.c_str());
    }
}

} // namespace gaudi::base
