#include "uct/gaudi/base/cards/missing_card.h"

#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/holders.h"

#include <algorithm>

namespace gaudi::base {

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
        const auto found = std::find_if(taken.begin(), taken.end(),
                                        [&](const shim::visible_card &one) {
                                            return one.info.bus_id == bus_id;
                                        });
        if (found == taken.end()) {
            return;
        }
        const auto seen = shim::holders_of(all, driver, number);
        const bool free =
            seen.empty() && !shim::is_taken(driver, fd).value_or(true);
        text +=
            (text.empty() ? "" : "; ") + found->name() + " by " +
            (free ? "a process that has ended since" : shim::describe(seen));
    });
    return text;
}

std::string describe(const shim::driver &driver, const missing_card &missing)
{
    return missing.taken.empty()
               ? missing.why
               : missing.why + ": " + describe_taken(driver, missing.taken);
}

} // namespace gaudi::base
