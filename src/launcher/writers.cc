/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/info.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>

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
    std::vector<std::vector<std::string>> rows = {{"index", "module", "bus id",
                                                   "numa", "HBM", "free",
                                                   "state", "kind", "held by"}};
    for (const card &one : cards) {
        rows.push_back({to_number(one.name), to_number(one.module_id),
                        one.bus_id, to_number(one.numa_node),
                        to_size(one.memory), to_size(one.free_memory),
                        state_of(one), kind_of(one),
                        one.held_by.empty() ? "-" : describe(one.held_by)});
    }
    return to_columns(rows);
}

/* A line if all pairs have one answer, else a matrix of the ways and what they
 * mean: 28 pairs of eight cards are read at one glance. */
std::string to_matrix(const std::vector<pair_group> &groups)
{
    std::map<unsigned, size_t> places; /* of cards, by their names */
    size_t count = 0;
    for (const pair_group &group : groups) {
        count += group.pairs.size();
        for (const auto &[one, other] : group.pairs) {
            places[one]   = 0;
            places[other] = 0;
        }
    }
    if (groups.size() == 1) {
        return to_line("pairs", groups[0].name() + std::string(" for all ") +
                                    std::to_string(count) + ": " +
                                    groups[0].why);
    }
    std::vector<std::vector<std::string>> rows(
        1 + places.size(), std::vector<std::string>(1 + places.size(), "-"));
    rows[0][0]  = "pairs";
    size_t last = 0;
    for (auto &[name, place] : places) {
        place          = ++last;
        rows[0][place] = rows[place][0] = std::to_string(name);
    }
    std::string reasons;
    for (size_t i = 0; i < groups.size(); ++i) {
        const std::string way = groups[i].name() + std::to_string(i + 1);
        for (const auto &[one, other] : groups[i].pairs) {
            rows[places[one]][places[other]] = way;
            rows[places[other]][places[one]] = way;
        }
        reasons += to_line(way.c_str(), groups[i].why);
    }
    return groups.empty() ? "" : to_columns(rows) + reasons;
}

/* Links from a card to another one: how many are up, of how many there are; a
 * state that is not known counts as none. */
struct link_count {
    unsigned up    = 0;
    unsigned known = 0;
    unsigned all   = 0;

    void add(const gaudi::shim::port_link &link)
    {
        up += link.is_up ? 1 : 0;
        known += link.state.empty() ? 0 : 1;
        ++all;
    }
    [[nodiscard]] std::string text() const
    {
        const std::string count = std::to_string(all);
        return (all == 0)      ? "-"
               : (known < all) ? count + "?"
               : (up == all)   ? count
                               : std::to_string(up) + "/" + count;
    }
};

/* How many links of each card lead where: a line if it is the same of all, else
 * one row for each card. */
std::string to_links(const std::vector<card> &cards)
{
    std::vector<const card *> shown;
    std::vector<std::vector<std::string>> rows = {{"links"}};
    std::string map;
    for (const card &one : cards) {
        if (one.name.has_value() && !one.no_map.empty()) {
            return to_line("links", one.no_map);
        }
        if (one.name.has_value() && !one.links.empty()) {
            shown.push_back(&one);
            rows[0].push_back(std::to_string(*one.name));
            map = one.port_map;
        }
    }
    std::set<std::string> of_pairs;
    for (const card *one : shown) {
        std::map<unsigned, link_count> to; /* by module ids */
        for (const gaudi::shim::port_link &link : one->links) {
            if (link.end.is_card) {
                to[link.end.module_id].add(link);
            }
        }
        std::vector<std::string> row = {std::to_string(*one->name)};
        for (const card *peer : shown) {
            row.push_back(peer->module_id.has_value()
                              ? to[*peer->module_id].text()
                              : "-");
            if (peer != one) {
                of_pairs.insert(row.back());
            }
        }
        rows.push_back(std::move(row));
    }
    if (of_pairs.size() == 1) {
        return to_line("links",
                       *of_pairs.begin() + " for each pair (" + map + ")");
    }
    return shown.empty() ? "" : to_columns(rows) + to_line("box", map);
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

cJSON *json_holder(const gaudi::shim::holder &one)
{
    return json_object({{"pid", cJSON_CreateNumber(one.pid)},
                        {"user", cJSON_CreateNumber(one.user)},
                        {"program", json(one.program)}});
}

cJSON *json_link(const gaudi::shim::port_link &one)
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
    std::string text =
        to_line("driver", or_none(found.driver_file) + " (UCX_GAUDI_DRIVER=" +
                              found.driver_setting + ")");
    if (!found.cards.empty()) {
        const std::string links = to_links(found.cards);
        text += "\n" + to_table(found.cards) + "\n" + to_matrix(found.pairs) +
                (found.pairs.empty() ? "" : "\n") + links +
                (links.empty() ? "" : "\n");
    }
    text += to_line("ucx", found.ucx.release.has_value()
                               ? found.ucx.version + " at " + found.ucx.libucp
                               : "none");
    text += to_line("module", or_none(found.module) + " (installed: " +
                                  or_none(to_text(found.installed)) + ")");
    for (const loading_way &way : found.ways) {
        text += to_line(way.name,
                        (way.state == "none")
                            ? "none in UCX " + found.ucx.version
                            : pad(way.state, 10) + " " + way.place.string());
    }
    for (const problem &one : found.missing) {
        text += "\nmissing   " + one.what + "\nto mend   " + one.mend + "\n";
    }
    return text;
}

std::string to_json(const report &found)
{
    std::vector<std::pair<const char *, cJSON *>> ways;
    for (const loading_way &way : found.ways) {
        ways.emplace_back(
            way.name,
            json_object({{"state", json(way.state)},
                         {"path", json_or_null(way.place.string())}}));
    }
    const auto json_release = [](const ucx_release &one) {
        return json(to_string(one));
    };
    const auto json_problem = [](const problem &one) {
        return json_object(
            {{"missing", json(one.what)}, {"to_mend", json(one.mend)}});
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
                                  {"libucp", json_or_null(found.ucx.libucp)}})},
             {"module", json_object({{"path", json_or_null(found.module)},
                                     {"installed", json_array(found.installed,
                                                              json_release)}})},
             {"loading", json_object(ways)},
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
