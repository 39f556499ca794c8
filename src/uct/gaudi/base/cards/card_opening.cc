/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the card table that opens cards, and says why there is none. */
#include "hlthunk_shim/discovery/card_info.h"
#include "hlthunk_shim/discovery/open_nodes.h"
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

/* One opening: by the thread that has opening_, which alone changes pending_.
 */
class card_table::opening {
public:
    opening(card_table &table, const shim::driver &driver,
            const held_cards &open)
        : table_(table), driver_(driver), open_(open),
          box_(shim::list_cards(driver)),
          visible_(shim::find_visible_cards(shim::visibility_variables::read(),
                                            box_))
    {}
    ~opening();

    ucs_status_t run(const char *chosen);

private:
    [[nodiscard]] std::string choose(const char *chosen);
    void wait_for_resets();
    [[nodiscard]] bool try_cards();
    void open_missing();
    [[nodiscard]] ucs_status_t judge(const char *chosen);
    void publish();

    /* One of those that are wanted. */
    [[nodiscard]] const shim::visible_card &candidate(size_t place) const
    {
        return visible_.cards[wanted_.cards[place]];
    }

    card_table &table_;
    const shim::driver &driver_;
    const held_cards &open_; /* already */
    const std::vector<shim::card_info> box_;
    const shim::visible_cards visible_;
    device_selection wanted_;
    bool automatic_ = false;         /* a card of the application's will do */
    size_t got_     = 0;             /* of those wanted */
    std::map<size_t, int> errors_{}; /* of candidates */
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
    return (loaded == nullptr) ? UCS_ERR_NO_DEVICE
                               : opening(*this, *loaded, open).run(chosen);
}

ucs_status_t card_table::opening::run(const char *chosen)
{
    if (box_.empty()) {
        ucs_debug("gaudi: the driver shows no card");
        return UCS_ERR_NO_DEVICE;
    }
    if (!visible_.error.empty()) {
        return table_.report_setting(visible_.error);
    }
    wanted_ = select_devices(config().devices, visible_);
    if (!wanted_.error.empty()) {
        return table_.report_setting(setting_of_devices() + wanted_.error);
    }
    automatic_ = (std::strcmp(config().devices, "auto") == 0);
    if (chosen != nullptr) {
        const std::string why = choose(chosen);
        if (!why.empty()) {
            return table_.fail(UCS_ERR_NO_DEVICE, UCS_LOG_LEVEL_ERROR, why);
        }
    }
    wait_for_resets();
    const ucs_status_t status = judge(chosen);
    if (status == UCS_OK) {
        publish();
    }
    return status;
}

void card_table::opening::publish()
{
    card_list added;
    {
        const std::lock_guard<std::mutex> guard(table_.lock_);
        table_.failure_.clear();
        for (const auto &[_, each] : std::exchange(table_.pending_, {})) {
            table_.opened_.publish(each);
            added.push_back(each);
        }
    }
    table_.announce(added);
}

/* Close what was not published: with in_driver_, since until then it looks like
 * cards of the application. */
card_table::opening::~opening()
{
    const turn mine(table_, table_.in_driver_);
    std::map<size_t, std::shared_ptr<card>> closing;
    const std::lock_guard<std::mutex> guard(table_.lock_);
    closing.swap(table_.pending_);
}

/* Have a card be among those that are opened: in place of others where one of
 * several would do, and alone where the others had their turn.
 * @return Why that cannot be. */
std::string card_table::opening::choose(const char *chosen)
{
    const device_selection one = select_devices(chosen, visible_);
    if (!one.error.empty()) {
        return one.error;
    }
    if (!one.named || (one.cards.size() != 1)) {
        return "'" + std::string(chosen) + "' does not name one card";
    }
    const size_t place             = one.cards.front();
    const shim::visible_card &card = visible_.cards[place];
    if (std::ranges::count(wanted_.cards, place) == 0) {
        return setting_of_devices() + card.name() + " is not among them";
    }
    for (const auto *each : open_.all()) {
        if (each->is_lost() && !each->is_adopted() &&
            (each->info().bus_id == card.info.bus_id)) {
            return card.name() +
                   " was reset or removed: it cannot be opened again before "
                   "all cards of this process are closed (close UCX, and call "
                   "ucx_gaudi_close)";
        }
    }
    if (!open_.empty() || (wanted_.wanted < wanted_.cards.size())) {
        wanted_    = {{place}, 1, false, ""};
        automatic_ = false;
    }
    return "";
}

/* Try until there are as many cards as wanted, or none of the missing ones is
 * in reset. Openings that fail one after the other, as those of several memory
 * domains do, wait no longer together than one of them may. */
void card_table::opening::wait_for_resets()
{
    const auto limit = std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double>(
            std::fmin(std::fmax(config().reset_timeout, 0), 3600)));
    auto &gave_up    = table_.gave_up_;
    const auto start = clock::now();
    const auto deadline =
        (gave_up && (start - *gave_up < limit)) ? start : start + limit;
    while (try_cards()) {
        const auto left = deadline - clock::now();
        if (left <= clock::duration::zero()) {
            gave_up = (deadline == start) ? gave_up : clock::now();
            return;
        }
        std::this_thread::sleep_for(
            std::min<clock::duration>(retry_interval, left));
    }
}

/* @return Whether a card is missing that is in reset. */
bool card_table::opening::try_cards()
{
    table_.drop_closed();
    card_list adopted;
    bool enough = false;
    {
        const turn mine(table_, table_.in_driver_);
        /* What the application has open comes first: it is there on purpose. */
        adopted = table_.adopt(driver_, box_, visible_);
        enough  = automatic_ && (open_.first() != nullptr);
        if (!enough) {
            open_missing();
        }
    }
    table_.announce(adopted);
    return !enough && (got_ < wanted_.wanted) &&
           std::ranges::any_of(errors_, [](const auto &each) {
               return each.second == -EAGAIN;
           });
}

void card_table::opening::open_missing()
{
    got_ = 0;
    for (size_t place = 0;
         (place < wanted_.cards.size()) && (got_ < wanted_.wanted); ++place) {
        const shim::visible_card &next = candidate(place);
        const auto is_it               = [&](const card &open) {
            return open.device().bus_id() == next.info.bus_id;
        };
        if (table_.pending_.contains(place) ||
            (open_.find_open(is_it) != nullptr)) {
            ++got_;
            continue;
        }
        const auto known = errors_.find(place);
        if ((known != errors_.end()) && (known->second != -EAGAIN)) {
            continue;
        }
        std::unique_ptr<shim::card> opened;
        const int ret = driver_.open(next.info.bus_id, opened);
        if (ret != 0) {
            errors_[place] = ret;
            continue;
        }
        errors_.erase(place);
        ++got_;
        ucs_debug("%s (%s) opened", next.name().c_str(),
                  next.info.bus_id.c_str());
        shim::node_identity node;
        (void)shim::identify(opened->fd(), node);
        const auto fresh =
            table_.make_card(next, std::move(opened), node, false);
        const std::lock_guard<std::mutex> guard(table_.lock_);
        table_.pending_.emplace(place, fresh);
    }
}

/* Whether that was enough. If not, one line says why. */
ucs_status_t card_table::opening::judge(const char *chosen)
{
    size_t busy = 0;
    std::string why; /* of one card, a broken one if there is any */
    std::vector<std::string> broken;
    for (const auto &[place, error] : errors_) {
        std::string text = describe(driver_, candidate(place), error);
        ucs_debug("%s", text.c_str());
        why = (why.empty() || (error != -EBUSY)) ? text : why;
        if (error == -EBUSY) {
            ++busy;
        } else if ((error != -ENOTSUP) &&
                   ((error != -EAGAIN) || (got_ < wanted_.wanted))) {
            broken.push_back(std::move(text));
        }
    }
    const auto is_chosen = [&](const card &each) {
        return (chosen == nullptr) || each.is_called(chosen);
    };
    const bool found =
        (open_.find_open(is_chosen) != nullptr) ||
        std::ranges::any_of(table_.pending_, [&](const auto &each) {
            return is_chosen(*each.second);
        });
    const ucs_status_t status = (busy > 0) ? UCS_ERR_BUSY : UCS_ERR_NO_DEVICE;
    if ((chosen != nullptr) && !found) {
        return table_.fail(status, UCS_LOG_LEVEL_ERROR,
                           "card " + std::string(chosen) +
                               " was not opened: " + why);
    }
    if (wanted_.named && (got_ < wanted_.wanted)) {
        return table_.fail(UCS_ERR_BUSY, UCS_LOG_LEVEL_ERROR,
                           setting_of_devices() + std::to_string(got_) +
                               " of " + std::to_string(wanted_.wanted) +
                               " cards are free: " + why);
    }
    if (found) {
        for (const std::string &each : broken) {
            ucs_warn("%s", each.c_str());
        }
        return UCS_OK;
    }
    if (wanted_.cards.empty()) {
        why = "HABANA_VISIBLE_DEVICES hides all " +
              std::to_string(box_.size()) + " cards of this machine";
    } else if ((busy > 0) && broken.empty()) {
        why = std::to_string(busy) + " of " +
              std::to_string(wanted_.cards.size()) +
              " cards are in use by other processes (`ucx-gaudi info` shows "
              "them)";
    }
    return table_.fail(
        status, broken.empty() ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_WARN, why);
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
