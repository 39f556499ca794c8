/* The part of the device table that tells why there is no card. */
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/memory/registration_cache.h"
#include "util/text.h"

#include <cstdlib>
#include <utility>

namespace gaudi::base {

/* Whether the log does not have a line yet. Several memory domains open the
 * cards, one after the other, and all meet with the same. */
bool device_table::is_news(const std::string &text)
{
    return told_.insert(text).second;
}

ucs_status_t device_table::refuse_setting(const std::string &text)
{
    missing_.told = true;
    if (is_news(text)) {
        ucs_error("%s", util::to_printable(text).c_str());
    }
    return UCS_ERR_INVALID_PARAM;
}

/* Nobody has opened a card, or somebody has closed it again: UCX tries the
 * memory domains of transports that it leaves out. */
std::string
device_table::why_nothing_was_tried(const shim::driver &driver) const
{
    if (shim::list_cards(driver).empty()) {
        return "the driver library " + driver.lib().path() + " shows no card";
    }
    const char *tls = std::getenv("UCX_TLS");
    return std::string("UCX has not opened gaudi_copy") +
           ((tls != nullptr) ? " (UCX_TLS=" + util::to_printable(tls) + ")"
                             : "");
}

void device_table::explain_missing_card()
{
    /* Opened by the memory domain that allocates. */
    if (registration_cache::instance().is_open()) {
        return;
    }
    const shim::driver *loaded = driver();
    missing_card missing;
    {
        std::lock_guard<std::mutex> guard(opening_lock_);
        if (std::exchange(explained_, true) || missing_.told) {
            return;
        }
        missing = missing_;
    }
    std::string why;
    if (loaded == nullptr) {
        why = why_no_driver();
    } else {
        why = missing.why.empty() ? why_nothing_was_tried(*loaded)
                                  : describe(*loaded, missing);
    }
    if (!why.empty()) {
        ucs_warn("gaudi: there is no Gaudi memory for this process: %s",
                 why.c_str());
    }
}

} // namespace gaudi::base
