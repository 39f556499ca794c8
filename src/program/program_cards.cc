/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of ucx_gaudi.h that tells which cards a process may open. Takes
 * none. */
#include "hlthunk_shim/discovery/open_nodes.h"
#include "hlthunk_shim/discovery/visible_cards.h"
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/device_list.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/status.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

namespace gaudi {

namespace {

using base::card;
using base::card_table;
using shim::visible_card;

/* Those that UCX_GAUDI_DEVICES leaves, in its order, and then those that the
 * application has open beside. */
ucs_status_t list_cards(const shim::driver &driver,
                        std::span<card *const> opened,
                        std::vector<visible_card> &cards)
{
    const auto visible = shim::find_visible_cards(
        shim::visibility_variables::read(), shim::list_cards(driver));
    std::string error = visible.error;
    if (error.empty() && !visible.cards.empty()) {
        const auto selected =
            base::select_devices(base::config().devices, visible);
        if (!selected.error.empty()) {
            error = card_table::setting_of_devices() + selected.error;
        }
        for (const size_t place : selected.cards) {
            cards.push_back(visible.cards[place]);
        }
    }
    if (!error.empty()) {
        return card_table::instance().report_setting(error);
    }
    for (const card *open : opened) {
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
void ask(const shim::driver &driver, std::span<card *const> opened,
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
    if (std::any_of(opened.begin(), opened.end(), [&](const card *open) {
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
    const base::held_cards held = card_table::instance().cards();
    const auto opened           = held.all();
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
    std::snprintf(all.name, sizeof(all.name), "%s", found.name().c_str());
    std::snprintf(all.bus_id, sizeof(all.bus_id), "%s",
                  found.info.bus_id.c_str());
    all.numa_node = found.info.numa_node.has_value()
                        ? static_cast<int>(*found.info.numa_node)
                        : -1;

    using attributes = ucx_gaudi_card_attr_t;
    const auto tell  = [&](uint64_t field, auto attributes::*member) {
        if (attr.field_mask & field) {
            std::memcpy(&(attr.*member), &(all.*member), sizeof(all.*member));
        }
    };
    tell(UCX_GAUDI_CARD_ATTR_FIELD_NAME, &attributes::name);
    tell(UCX_GAUDI_CARD_ATTR_FIELD_BUS_ID, &attributes::bus_id);
    tell(UCX_GAUDI_CARD_ATTR_FIELD_STATE, &attributes::state);
    tell(UCX_GAUDI_CARD_ATTR_FIELD_NUMA_NODE, &attributes::numa_node);
    tell(UCX_GAUDI_CARD_ATTR_FIELD_TOTAL_MEMORY, &attributes::total_memory);
    tell(UCX_GAUDI_CARD_ATTR_FIELD_FREE_MEMORY, &attributes::free_memory);
    return UCS_OK;
}

} // namespace

} // namespace gaudi

ucs_status_t ucx_gaudi_card_query(unsigned number, ucx_gaudi_card_attr_t *attr)
{
    if (attr == nullptr) {
        return gaudi::refuse_null(__func__);
    }
    return gaudi::base::guarded_entry(
        [&] { return gaudi::query_card(number, *attr); });
}
