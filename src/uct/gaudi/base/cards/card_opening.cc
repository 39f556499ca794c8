/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the card table that opens cards, and says why there is none. */
#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/device_list.h"
#include "uct/gaudi/base/cards/driver.h"
#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

namespace gaudi::base {

namespace {

/* Short beside a reset, and an open that fails costs the driver little. */
constexpr std::chrono::milliseconds retry_interval{20};

std::string describe(const shim::driver &driver, const shim::visible_card &of,
                     int error)
{
    const std::string card = of.name() + " (" + of.info.bus_id + ") ";
    switch (error) {
    case -EBUSY:
        return card + "is in use by another process (`ucx-gaudi info` shows "
                      "it)";
    case -EAGAIN:
        return card + "cannot be opened: it is in reset "
                      "(UCX_GAUDI_RESET_TIMEOUT)";
    case -ENOTSUP:
        return card +
               "cannot be used: " + shim::why_refused(driver, of.info.bus_id);
    default:
        return card + "cannot be opened: " + std::strerror(-error);
    }
}

} // namespace

/* One opening, and how far it has come. */
struct card_table::attempt {
    card_table &of;
    const shim::driver &driver;
    const held_cards &open; /* already */
    const std::vector<shim::card_info> box;
    shim::visible_cards visible;
    device_selection wanted;
    bool automatic = false;         /* a card of the application's is enough */
    size_t got     = 0;             /* of those wanted */
    std::map<size_t, int> errors{}; /* of those wanted, by place among them */

    ~attempt() { of.close_pending(); }

    [[nodiscard]] const shim::visible_card &candidate(size_t place) const
    {
        return visible.cards[wanted.cards[place]];
    }
};

std::string card_table::setting_of_devices()
{
    return "UCX_GAUDI_DEVICES=" + std::string(config().devices) + ": ";
}

/* Keep why an opening has failed, and log it, unless the one before has failed
 * alike: several memory domains open cards, one after the other. */
ucs_status_t card_table::fail(ucs_status_t status, ucs_log_level_t level,
                              const std::string &why)
{
    const std::string text = util::to_printable(why);
    bool is_new;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        is_new           = (std::exchange(failure_, text) != text);
        is_failure_told_ = (level <= UCS_LOG_LEVEL_WARN);
    }
    if (is_new) {
        ucs_log(level, "%s", text.c_str());
    }
    return status;
}

ucs_status_t card_table::report_setting(const std::string &text)
{
    return fail(UCS_ERR_INVALID_PARAM, UCS_LOG_LEVEL_ERROR, text);
}

ucs_status_t card_table::open_wanted(const char *chosen, const held_cards &open)
{
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        return UCS_ERR_NO_DEVICE;
    }
    attempt now{*this, *loaded, open, shim::list_cards(*loaded), {}, {}};
    if (now.box.empty()) {
        ucs_debug("gaudi: the driver shows no card");
        return UCS_ERR_NO_DEVICE;
    }
    now.visible =
        shim::find_visible_cards(shim::visibility_variables::read(), now.box);
    if (!now.visible.error.empty()) {
        return report_setting(now.visible.error);
    }
    now.wanted = select_devices(config().devices, now.visible);
    if (!now.wanted.error.empty()) {
        return report_setting(setting_of_devices() + now.wanted.error);
    }
    now.automatic = (std::strcmp(config().devices, "auto") == 0);
    if (chosen != nullptr) {
        const std::string why = choose(now, chosen);
        if (!why.empty()) {
            return fail(UCS_ERR_NO_DEVICE, UCS_LOG_LEVEL_ERROR, why);
        }
    }
    wait_for_resets(now);
    const ucs_status_t status = judge(now, chosen);
    if (status == UCS_OK) {
        card_list added;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            failure_.clear();
            for (const auto &[_, each] : std::exchange(pending_, {})) {
                opened_.publish(each);
                added.push_back(each);
            }
        }
        announce(added);
    }
    return status;
}

/* Close what was opened and not published: in_driver_, since until then it
 * looks like cards of the application. */
void card_table::close_pending()
{
    const turn mine(*this, in_driver_);
    std::map<size_t, std::shared_ptr<card>> closing;
    const std::lock_guard<std::mutex> guard(lock_);
    closing.swap(pending_);
}

/* Have a card be among those that are opened: in place of others where one of
 * several would do, and alone where the others had their turn.
 * @return Why that cannot be. */
std::string card_table::choose(attempt &now, const char *chosen)
{
    const device_selection one = select_devices(chosen, now.visible);
    if (!one.error.empty()) {
        return one.error;
    }
    if (!one.named || (one.cards.size() != 1)) {
        return "'" + std::string(chosen) + "' does not name one card";
    }
    const size_t place             = one.cards.front();
    const shim::visible_card &card = now.visible.cards[place];
    if (std::ranges::count(now.wanted.cards, place) == 0) {
        return setting_of_devices() + card.name() + " is not among them";
    }
    for (const auto *each : now.open.all()) {
        if (each->is_lost() && !each->is_adopted() &&
            (each->info().bus_id == card.info.bus_id)) {
            return card.name() +
                   " was reset or removed: it cannot be opened again before "
                   "all cards of this process are closed (close UCX, and call "
                   "ucx_gaudi_close)";
        }
    }
    if (!now.open.empty() || (now.wanted.wanted < now.wanted.cards.size())) {
        now.wanted    = {{place}, 1, false, ""};
        now.automatic = false;
    }
    return "";
}

/* Try until there are as many cards as wanted, or none of the missing ones is
 * in reset. Openings that fail one after the other, as those of several memory
 * domains do, wait no longer together than one of them may. */
void card_table::wait_for_resets(attempt &now)
{
    const auto limit = std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double>(
            std::fmin(std::fmax(config().reset_timeout, 0), 3600)));
    const auto start = clock::now();
    const auto deadline =
        (gave_up_ && (start - *gave_up_ < limit)) ? start : start + limit;
    while (try_cards(now)) {
        const auto left = deadline - clock::now();
        if (left <= clock::duration::zero()) {
            gave_up_ = (deadline == start) ? gave_up_ : clock::now();
            return;
        }
        std::this_thread::sleep_for(
            std::min<clock::duration>(retry_interval, left));
    }
}

/* @return Whether a card is missing that is in reset. */
bool card_table::try_cards(attempt &now)
{
    drop_closed();
    card_list adopted;
    bool enough = false;
    {
        const turn mine(*this, in_driver_);
        /* What the application has open comes first: it is there on purpose. */
        adopted = adopt(now.driver, now.box, now.visible);
        enough  = now.automatic && (now.open.first() != nullptr);
        if (!enough) {
            open_missing(now);
        }
    }
    announce(adopted);
    return !enough && (now.got < now.wanted.wanted) &&
           std::ranges::any_of(now.errors, [](const auto &each) {
               return each.second == -EAGAIN;
           });
}

/* Nobody but the thread that has opening_ changes pending_. */
void card_table::open_missing(attempt &now)
{
    now.got = 0;
    for (size_t place = 0;
         (place < now.wanted.cards.size()) && (now.got < now.wanted.wanted);
         ++place) {
        const shim::visible_card &next = now.candidate(place);
        if (pending_.contains(place) ||
            (now.open.find_open([&](const card &open) {
                return open.device().bus_id() == next.info.bus_id;
            }) != nullptr)) {
            ++now.got;
            continue;
        }
        const auto known = now.errors.find(place);
        if ((known != now.errors.end()) && (known->second != -EAGAIN)) {
            continue;
        }
        std::unique_ptr<shim::card> opened;
        const int ret = now.driver.open(next.info.bus_id, opened);
        if (ret != 0) {
            now.errors[place] = ret;
            continue;
        }
        now.errors.erase(place);
        ++now.got;
        ucs_debug("%s (%s) opened", next.name().c_str(),
                  next.info.bus_id.c_str());
        shim::node_identity node;
        (void)shim::identify(opened->fd(), node);
        const auto fresh = make_card(next, std::move(opened), node, false);
        const std::lock_guard<std::mutex> guard(lock_);
        pending_.emplace(place, fresh);
    }
}

/* Whether that was enough. If not, one line says why. */
ucs_status_t card_table::judge(const attempt &now, const char *chosen)
{
    const device_selection &wanted = now.wanted;
    size_t busy                    = 0;
    std::string why; /* of one card, a broken one if there is any */
    std::vector<std::string> broken;
    for (const auto &[place, error] : now.errors) {
        std::string text = describe(now.driver, now.candidate(place), error);
        ucs_debug("%s", text.c_str());
        why = (why.empty() || (error != -EBUSY)) ? text : why;
        if (error == -EBUSY) {
            ++busy;
        } else if ((error != -ENOTSUP) &&
                   ((error != -EAGAIN) || (now.got < wanted.wanted))) {
            broken.push_back(std::move(text));
        }
    }
    const auto is_chosen = [&](const card &each) {
        return (chosen == nullptr) || each.is_called(chosen);
    };
    const bool found = (now.open.find_open(is_chosen) != nullptr) ||
                       std::ranges::any_of(pending_, [&](const auto &each) {
                           return is_chosen(*each.second);
                       });
    const ucs_status_t status = (busy > 0) ? UCS_ERR_BUSY : UCS_ERR_NO_DEVICE;
    if ((chosen != nullptr) && !found) {
        return fail(status, UCS_LOG_LEVEL_ERROR,
                    "card " + std::string(chosen) + " was not opened: " + why);
    }
    if (wanted.named && (now.got < wanted.wanted)) {
        return fail(UCS_ERR_BUSY, UCS_LOG_LEVEL_ERROR,
                    setting_of_devices() + std::to_string(now.got) + " of " +
                        std::to_string(wanted.wanted) +
                        " cards are free: " + why);
    }
    if (found) {
        for (const std::string &each : broken) {
            ucs_warn("%s", each.c_str());
        }
        return UCS_OK;
    }
    if (wanted.cards.empty()) {
        why = "HABANA_VISIBLE_DEVICES hides all " +
              std::to_string(now.box.size()) + " cards of this machine";
    } else if ((busy > 0) && broken.empty()) {
        why = std::to_string(busy) + " of " +
              std::to_string(wanted.cards.size()) +
              " cards are in use by other processes (`ucx-gaudi info` shows "
              "them)";
    }
    return fail(status,
                broken.empty() ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_WARN, why);
}

void card_table::explain_missing_card()
{
    std::string why;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (std::exchange(explained_, true) ||
            (!failure_.empty() && is_failure_told_)) {
            return;
        }
        why = failure_;
    }
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        why = why_no_driver();
    } else if (why.empty()) {
        /* Nothing was tried, or what was opened has been closed. */
        why = shim::list_cards(*loaded).empty()
                  ? "the driver library " + loaded->path() + " shows no card"
                  : "UCX has not opened gaudi_copy (UCX_TLS has to allow it)";
    }
    if (!why.empty()) {
        ucs_warn("gaudi: there is no Gaudi memory for this process: %s",
                 why.c_str());
    }
}

} // namespace gaudi::base
