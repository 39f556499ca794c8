/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/info.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <cjson/cJSON.h>

namespace launcher {

namespace {

const char *state_of(const card &one)
{
    constexpr const char *names[] = {"free",  "ours",   "busy",
                                     "reset", "broken", "unknown"};
    return names[static_cast<size_t>(one.state)];
}

const char *kind_of(const card &one)
{
    return one.software ? "emulator" : "hardware";
}

/* --- text ------------------------------------------------------------------*/

std::string pad(std::string text, size_t width)
{
    text.resize(std::max(text.size(), width), ' ');
    return text;
}

std::string to_line(const char *label, const std::string &value)
{
    return pad(label, 9) + " " + to_printable(value) + "\n";
}

std::string or_none(const std::string &text)
{
    return text.empty() ? "none" : text;
}

std::string to_number(const std::optional<unsigned> &number)
{
    return number.has_value() ? std::to_string(*number) : "-";
}

/* In columns; all rows have as many as the first. */
std::string to_columns(const std::vector<std::vector<std::string>> &rows)
{
    std::vector<std::string> lines(rows.size());
    for (size_t column = 0; column < rows[0].size(); ++column) {
        size_t width = 0;
        for (const std::string &line : lines) {
            width = std::max(width, line.size() + 2);
        }
        for (size_t i = 0; i < rows.size(); ++i) {
            lines[i] = (column == 0) ? rows[i][0]
                                     : pad(lines[i], width) + rows[i][column];
        }
    }
    std::string text;
    for (const std::string &line : lines) {
        text += to_printable(line) + "\n";
    }
    return text;
}

std::string to_table(const std::vector<card> &cards)
{
    std::vector<std::vector<std::string>> rows = {{"card", "module", "bus id",
                                                   "numa", "HBM", "free",
                                                   "state", "held by"}};
    for (const card &one : cards) {
        rows.push_back({to_number(one.name), to_number(one.module_id),
                        one.bus_id, to_number(one.numa_node),
                        to_size(one.memory), to_size(one.free_memory),
                        state_of(one),
                        one.held_by.empty() ? "-" : describe(one.held_by)});
    }
    return to_columns(rows);
}

/* A line for each way and reason; mostly that is one line. */
std::string to_text(const std::vector<pair_group> &groups)
{
    std::string text;
    for (const pair_group &group : groups) {
        std::string cards = "all " + std::to_string(group.pairs.size());
        if (groups.size() > 1) {
            cards.clear();
            for (const auto &[one, other] : group.pairs) {
                cards += (cards.empty() ? "" : " ") + std::to_string(one) +
                         "-" + std::to_string(other);
            }
        }
        text += to_line("pairs", group.name() + std::string(" for ") + cards +
                                     ": " + group.why);
    }
    return text;
}

/* --- JSON ------------------------------------------------------------------*/

cJSON *json(const std::string &text)
{
    return cJSON_CreateString(to_printable(text).c_str());
}

cJSON *json_or_null(const std::string &text)
{
    return text.empty() ? cJSON_CreateNull() : json(text);
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

cJSON *json_card(const card &one)
{
    return json_object({{"index", json(one.name)},
                        {"module_id", json(one.module_id)},
                        {"bus_id", json(one.bus_id)},
                        {"numa_node", json(one.numa_node)},
                        {"memory", json(one.memory)},
                        {"free_memory", json(one.free_memory)},
                        {"state", json(state_of(one))},
                        {"kind", json(kind_of(one))},
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

std::string to_size(const std::optional<uint64_t> &bytes)
{
    constexpr double mebibyte = 1ul << 20;
    constexpr double gibibyte = 1ul << 30;

    if (!bytes.has_value()) {
        return "-";
    }
    const auto value = static_cast<double>(*bytes);
    const bool large = (value >= gibibyte);
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%s",
                  value / (large ? gibibyte : mebibyte), large ? "GiB" : "MiB");
    return text;
}

int print(const std::string &text, int code)
{
    if ((std::fputs(text.c_str(), stdout) < 0) || (std::fflush(stdout) != 0)) {
        std::fprintf(stderr, "ucx-gaudi: cannot write: %s\n",
                     std::strerror(errno));
        return EXIT_FAILURE;
    }
    return code;
}

std::string to_text(const report &found)
{
    const bool software = !found.cards.empty() && found.cards[0].software;
    std::string text;
    if (!found.cards.empty()) {
        text = to_table(found.cards) + "\n" + to_text(found.pairs);
    }
    text += to_line("driver", or_none(found.driver_file) +
                                  " (UCX_GAUDI_DRIVER=" + found.driver_setting +
                                  ")" + (software ? ", software cards" : "")) +
            to_line("ucx", (found.ucx.release.has_value()
                                ? found.ucx.version + " at " + found.ucx.libucp
                                : "none") +
                               " (of " + found.ucx.of + ")") +
            to_line("module", or_none(found.module) + " (installed: " +
                                  or_none(to_text(found.installed)) + ")") +
            to_line(found.way.c_str(),
                    pad(found.way_state, 10) + " " + found.way_place.string());
    for (const problem &one : found.missing) {
        text += "\nproblem   " + one.what + "\nfix:      " + one.fix + "\n";
    }
    return text;
}

std::string to_json(const report &found)
{
    const auto json_release = [](const ucx_release &one) {
        return json(to_string(one));
    };
    const auto json_problem = [](const problem &one) {
        return json_object({{"what", json(one.what)}, {"fix", json(one.fix)}});
    };
    const std::unique_ptr<cJSON, decltype(&cJSON_Delete)> all(
        json_object(
            {{"usable", cJSON_CreateBool(found.usable ? 1 : 0)},
             {"driver",
              json_object({{"setting", json(found.driver_setting)},
                           {"file", json_or_null(found.driver_file)}})},
             {"cards", json_array(found.cards, json_card)},
             {"pairs", json_array(found.pairs, json_pairs)},
             {"ucx", json_object({{"version", json_or_null(found.ucx.version)},
                                  {"libucp", json_or_null(found.ucx.libucp)},
                                  {"of", json(found.ucx.of)}})},
             {"module", json_object({{"path", json_or_null(found.module)},
                                     {"installed", json_array(found.installed,
                                                              json_release)}})},
             {"loading", json_object({{"way", json(found.way)},
                                      {"state", json(found.way_state)},
                                      {"path", json(found.way_place)}})},
             {"problems", json_array(found.missing, json_problem)}}),
        &cJSON_Delete);
    const std::unique_ptr<char, decltype(&cJSON_free)> text(
        cJSON_Print(all.get()), &cJSON_free);
    if (text == nullptr) {
        throw std::bad_alloc();
    }
    return std::string(text.get()) + "\n";
}

} // namespace launcher
