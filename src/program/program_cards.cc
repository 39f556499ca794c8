/* The part of ucx_gaudi.h that tells which cards a process may open. Takes
 * none. */
#include "hlthunk_shim/cards/holders.h"
#include "hlthunk_shim/cards/visible_cards.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/device_list.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/text.h"

#include <algorithm>
#include <cstdio>
#include <span>

namespace gaudi {

namespace {

using base::card;
using base::card_table;
using shim::visible_card;

/* Those that UCX_GAUDI_DEVICES leaves, in its order, and then those that the
 * application has open beside. */
ucs_status_t list_cards(const shim::driver &driver,
                        std::span<const std::unique_ptr<card>> opened,
                        std::vector<visible_card> &cards)
{
    const auto visible = shim::find_visible_cards(
        shim::visibility_variables::read(), shim::list_cards(driver));
    std::string error = visible.error;
    if (error.empty() && !visible.cards.empty()) {
        const auto selected =
            base::select_devices(base::config().devices, visible);
        error = selected.error;
        for (const size_t place : selected.cards) {
            cards.push_back(visible.cards[place]);
        }
    }
    if (!error.empty()) {
        ucs_error("gaudi: cannot list cards: %s",
                  util::to_printable(error).c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    for (const auto &open : opened) {
        const bool is_listed = std::any_of(
            cards.begin(), cards.end(), [&](const visible_card &listed) {
                return listed.info.bus_id == open->info().bus_id;
            });
        unsigned index;
        if (!is_listed && !open->is_lost() &&
            (std::sscanf(open->name().c_str(), "gaudi%u", &index) == 1)) {
            cards.push_back({open->info(), index});
        }
    }
    return UCS_OK;
}

ucx_gaudi_card_state_t state_of(const shim::card_check &check,
                                shim::engine used, std::optional<bool> taken)
{
    const bool supported = check.supported || (check.takes_framework &&
                                               (used == shim::engine::synapse));
    if ((check.error != 0) || !supported ||
        (check.condition == shim::device_condition::in_reset) ||
        (check.condition == shim::device_condition::disabled)) {
        return UCX_GAUDI_CARD_UNUSABLE;
    }
    if (!taken.has_value()) {
        return UCX_GAUDI_CARD_UNKNOWN;
    }
    return *taken ? UCX_GAUDI_CARD_TAKEN : UCX_GAUDI_CARD_FREE;
}

/* What only the control node tells. */
void ask(const shim::driver &driver,
         std::span<const std::unique_ptr<card>> opened,
         const visible_card &about, ucx_gaudi_card_attr_t &all)
{
    all.state        = UCX_GAUDI_CARD_UNKNOWN;
    all.total_memory = about.info.memory.value_or(0);
    all.free_memory  = 0;
    (void)shim::visit_cards(driver, [&](unsigned number, int fd,
                                        const std::string &bus_id) {
        if (bus_id != about.info.bus_id) {
            return;
        }
        const auto check = shim::check_card(driver, fd);
        all.state = state_of(check, driver.used(), shim::is_taken(driver, fd));
        all.total_memory = shim::describe_card(driver, number, fd, bus_id)
                               .memory.value_or(all.total_memory);
        all.free_memory = check.free_memory.value_or(0);
    });
    if (std::any_of(opened.begin(), opened.end(), [&](const auto &open) {
            return !open->is_lost() &&
                   (open->device().bus_id() == about.info.bus_id);
        })) {
        all.state = UCX_GAUDI_CARD_OPEN;
    }
}

ucs_status_t query_card(unsigned position, ucx_gaudi_card_attr_t &attr)
{
    const shim::driver *driver = base::driver();
    if (driver == nullptr) {
        return UCS_ERR_NO_ELEM;
    }
    base::card_hold hold;
    std::span<const std::unique_ptr<card>> opened;
    if (hold.join()) {
        opened = card_table::instance().cards();
    }
    std::vector<visible_card> cards;
    const ucs_status_t status = list_cards(*driver, opened, cards);
    if (status != UCS_OK) {
        return status;
    }
    if (position >= cards.size()) {
        return UCS_ERR_NO_ELEM;
    }
    const visible_card &found = cards[position];
    ucx_gaudi_card_attr_t all{};
    ask(*driver, opened, found, all);
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_NAME) {
        std::snprintf(attr.name, sizeof(attr.name), "%s", found.name().c_str());
    }
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_BUS_ID) {
        std::snprintf(attr.bus_id, sizeof(attr.bus_id), "%s",
                      found.info.bus_id.c_str());
    }
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_STATE) {
        attr.state = all.state;
    }
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_NUMA_NODE) {
        attr.numa_node = found.info.numa_node.has_value()
                             ? static_cast<int>(*found.info.numa_node)
                             : -1;
    }
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_TOTAL_MEMORY) {
        attr.total_memory = all.total_memory;
    }
    if (attr.field_mask & UCX_GAUDI_CARD_ATTR_FIELD_FREE_MEMORY) {
        attr.free_memory = all.free_memory;
    }
    return UCS_OK;
}

} // namespace

} // namespace gaudi

ucs_status_t ucx_gaudi_card_query(unsigned number, ucx_gaudi_card_attr_t *attr)
{
    if (attr == nullptr) {
        ucs_error("gaudi: ucx_gaudi_card_query: a pointer is NULL");
        return UCS_ERR_INVALID_PARAM;
    }
    return gaudi::base::guarded(
        [&] { return gaudi::query_card(number, *attr); });
}
