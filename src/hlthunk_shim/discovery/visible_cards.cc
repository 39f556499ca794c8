/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/visible_cards.h"

#include "hlthunk_shim/discovery/mapping_table.h"
#include "util/text.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <strings.h>

namespace gaudi::shim {

namespace {

constexpr char mapping_name[] = "GAUDI_MAPPING_TABLE";
constexpr char devices_name[] = "HABANA_VISIBLE_DEVICES";
constexpr char modules_name[] = "HABANA_VISIBLE_MODULES";
constexpr char module_name[]  = "HLS_MODULE_ID";

std::optional<std::string> read_variable(const char *name)
{
    const char *value = secure_getenv(name);
    return ((value != nullptr) && (*value != '\0')) ? std::optional(value)
                                                    : std::nullopt;
}

visible_cards refuse(const std::string &why)
{
    return {.cards = {}, .error = why};
}

bool is_word(const std::string &text, const char *word)
{
    return strcasecmp(text.c_str(), word) == 0;
}

/* Numbers separated by commas. An error is what is wrong with the text. */
std::string parse_numbers(const std::string &text, std::set<unsigned> &numbers)
{
    for (const std::string &item : util::split(text)) {
        const auto number = util::parse_number(item);
        if (!number.has_value()) {
            return "'" + item + "' is no number";
        }
        if (!numbers.insert(*number).second) {
            return "'" + item + "' is listed twice";
        }
    }
    return "";
}

visible_cards all_of(const std::vector<shim::card_info> &box)
{
    visible_cards result;
    for (const shim::card_info &info : box) {
        result.cards.push_back({info, info.index});
    }
    return result;
}

visible_cards apply_table(const std::string &value,
                          const std::vector<shim::card_info> &box)
{
    const std::string which = std::string(mapping_name) +
                              (is_mapping_text(value) ? "" : "=" + value) +
                              ": ";
    const mapping_table table = read_mapping_table(value);
    if (!table.error.empty()) {
        return refuse(which + table.error);
    }
    if (table.entries.empty()) {
        return refuse(which + "it names no card");
    }

    visible_cards result;
    result.chosen = true;
    for (size_t i = 0; i < table.entries.size(); ++i) {
        const mapping_entry &entry = table.entries[i];
        const auto found =
            std::ranges::find(box, entry.bus_id, &card_info::bus_id);
        const std::string where = which + "entry " + std::to_string(i + 1);
        if (found == box.end()) {
            return refuse(where + ": bus_id " + entry.bus_id +
                          " is none of the " + std::to_string(box.size()) +
                          " cards of this machine");
        }
        if (found->module_id.has_value() &&
            (*found->module_id != entry.module_id)) {
            return refuse(where + ": module_id " +
                          std::to_string(entry.module_id) + " is not card " +
                          entry.bus_id + "'s, which is " +
                          std::to_string(*found->module_id));
        }
        result.cards.push_back({*found, entry.index});
        result.cards.back().info.module_id = entry.module_id;
    }
    return result;
}

/* Leave out the cards whose number, of the kind that the list is of, is not
 * listed. */
template <typename Number>
void narrow(visible_cards &visible, const std::vector<shim::card_info> &box,
            const char *name, const std::string &text, const char *what,
            Number card_info::*number_of)
{
    const std::string which = std::string(name) + "=" + text + ": ";
    std::set<unsigned> wanted;
    const std::string fault = parse_numbers(text, wanted);
    if (!fault.empty()) {
        visible = refuse(which + fault);
        return;
    }
    for (unsigned number : wanted) {
        if (std::ranges::find(box, number, number_of) == box.end()) {
            visible = refuse(which + "no card of this machine has " + what +
                             " " + std::to_string(number));
            return;
        }
    }
    std::erase_if(visible.cards, [&](const visible_card &card) {
        const std::optional<unsigned> number = card.info.*number_of;
        return !number.has_value() || (wanted.count(*number) == 0);
    });
    visible.chosen = true;
    if (visible.cards.empty()) {
        visible = refuse(which + "none of these cards is left visible by the "
                                 "other variables");
    }
}

} // namespace

visibility_variables visibility_variables::read()
{
    return {read_variable(mapping_name), read_variable(devices_name),
            read_variable(modules_name), read_variable(module_name)};
}

visible_cards find_visible_cards(const visibility_variables &variables,
                                 const std::vector<shim::card_info> &box)
{
    visible_cards result = variables.mapping_table.has_value()
                               ? apply_table(*variables.mapping_table, box)
                               : all_of(box);

    const auto &devices = variables.visible_devices;
    if (result.error.empty() && devices.has_value()) {
        /* What the vendor's container runtime knows beside lists. */
        if (is_word(*devices, "none") || is_word(*devices, "void")) {
            result        = {};
            result.chosen = true;
            return result;
        }
        if (!is_word(*devices, "all")) {
            narrow(result, box, devices_name, *devices, "index",
                   &card_info::number);
        }
    }
    const auto &modules = variables.visible_modules;
    if (result.error.empty() && modules.has_value() &&
        !is_word(*modules, "all")) {
        narrow(result, box, modules_name, *modules, "module id",
               &card_info::module_id);
    }
    const auto &module = variables.module_id;
    if (result.error.empty() && module.has_value()) {
        if (module->find(',') != module->npos) {
            return refuse(std::string(module_name) + "=" + *module +
                          ": it is one number, not a list");
        }
        narrow(result, box, module_name, *module, "module id",
               &card_info::module_id);
    }
    return result;
}

} // namespace gaudi::shim
