/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/report/report.h"
#include "util/text.h"

#include <array>
#include <memory>
#include <new>

#include <cjson/cJSON.h>

namespace gaudi::shim {

namespace {

constexpr const char *states[] = {"free",  "ours",   "busy",
                                  "reset", "broken", "unknown"};

cJSON *json(const std::string &text)
{
    return cJSON_CreateString(util::to_printable(text).c_str());
}

cJSON *json_or_null(const std::string &text)
{
    return text.empty() ? cJSON_CreateNull() : json(text);
}

cJSON *json_bool(bool value)
{
    return cJSON_CreateBool(value ? 1 : 0);
}

template <typename Number>
cJSON *json(const std::optional<Number> &number)
{
    return number.has_value() ? cJSON_CreateNumber(static_cast<double>(*number))
                              : cJSON_CreateNull();
}

/* Takes over the values. */
cJSON *json_object(const std::vector<std::pair<const char *, cJSON *>> &members)
{
    cJSON *object = cJSON_CreateObject();
    for (const auto &[name, value] : members) {
        if (cJSON_AddItemToObject(object, name, value) == 0) {
            throw std::bad_alloc();
        }
    }
    return object;
}

template <typename List, typename Convert>
cJSON *json_array(const List &list, Convert &&convert)
{
    cJSON *array = cJSON_CreateArray();
    for (const auto &one : list) {
        cJSON_AddItemToArray(array, convert(one));
    }
    return array;
}

cJSON *json_holder(const holder &one)
{
    return json_object({{"pid", cJSON_CreateNumber(one.pid)},
                        {"user", cJSON_CreateNumber(one.user)},
                        {"program", json(one.program)}});
}

cJSON *json_link(const port_link &one)
{
    const auto number = [&](unsigned value) {
        return json(one.end.is_card ? std::optional(value) : std::nullopt);
    };
    return json_object(
        {{"port", cJSON_CreateNumber(one.port)},
         {"state", json_or_null(one.state)},
         {"leads_to", json(one.end.is_card ? "card" : "nothing")},
         {"module_id", number(one.end.module_id)},
         {"peer_port", number(one.end.port)}});
}

cJSON *json_card(const reported_card &one, bool software)
{
    return json_object({{"index", json(one.name)},
                        {"module_id", json(one.module_id)},
                        {"bus_id", json(one.bus_id)},
                        {"numa_node", json(one.numa_node)},
                        {"memory", json(one.memory)},
                        {"free_memory", json(one.free_memory)},
                        {"state", json(states[static_cast<size_t>(one.state)])},
                        {"kind", json(software ? "emulator" : "hardware")},
                        {"free", json_bool(one.is_free())},
                        {"number", json(std::optional(one.number))},
                        {"takes_framework", json_bool(one.takes_framework)},
                        {"held_by", json_array(one.held_by, json_holder)},
                        {"links", json_array(one.links, json_link)}});
}

cJSON *json_pairs(const pair_group &one)
{
    const auto json_pair = [](const std::pair<unsigned, unsigned> &cards) {
        return json_array(std::array{cards.first, cards.second},
                          cJSON_CreateNumber);
    };
    return json_object({{"way", json(one.name())},
                        {"why", json(one.why)},
                        {"cards", json_array(one.pairs, json_pair)}});
}

} // namespace

std::string to_json(const report &all)
{
    const auto json_problem = [](const problem &one) {
        return json_object({{"what", json(one.what)}, {"fix", json(one.fix)}});
    };
    const auto card = [&](const reported_card &one) {
        return json_card(one, all.software);
    };
    const std::unique_ptr<cJSON, decltype(&cJSON_Delete)> root(
        json_object(
            {{"usable", json_bool(all.usable)},
             {"driver", json_object({{"setting", json(all.driver_setting)},
                                     {"file", json_or_null(all.driver_file)},
                                     {"engine", json(all.engine)},
                                     {"card_kind", json(all.card_kind)},
                                     {"software", json_bool(all.software)},
                                     {"sysfs", json_or_null(all.sys)}})},
             {"cards", json_array(all.cards, card)},
             {"pairs", json_array(all.pairs, json_pairs)},
             {"problems", json_array(all.missing, json_problem)}}),
        &cJSON_Delete);
    const std::unique_ptr<char, decltype(&cJSON_free)> text(
        cJSON_PrintUnformatted(root.get()), &cJSON_free);
    if (text == nullptr) {
        throw std::bad_alloc();
    }
    return text.get();
}

} // namespace gaudi::shim
