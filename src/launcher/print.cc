/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/info.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <cjson/cJSON.h>

namespace launcher {

namespace {

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

/* A value of the module's answer; sizes are numbers of bytes. */
std::string to_cell(const cJSON *value, bool is_size = false)
{
    const char *text = cJSON_GetStringValue(value);
    return (text != nullptr)              ? text
           : (cJSON_IsNumber(value) == 0) ? "-"
           : is_size ? to_size(static_cast<uint64_t>(value->valuedouble))
                     : std::to_string(value->valueint);
}

std::string to_table(const report &found)
{
    constexpr std::pair<const char *, const char *> columns[] = {
        {"card", "index"},     {"module", "module_id"}, {"bus id", "bus_id"},
        {"numa", "numa_node"}, {"HBM", "memory"},       {"free", "free_memory"},
        {"state", "state"}};
    const cJSON *cards = cJSON_GetObjectItem(found.answer.get(), "cards");
    std::vector<std::vector<std::string>> rows(found.cards.size() + 1);
    for (const auto &[title, name] : columns) {
        rows[0].emplace_back(title);
        const bool is_size = std::string(name).ends_with("memory");
        for (size_t i = 0; i < found.cards.size(); ++i) {
            const cJSON *one = cJSON_GetArrayItem(cards, static_cast<int>(i));
            rows[i + 1].push_back(
                to_cell(cJSON_GetObjectItem(one, name), is_size));
        }
    }
    rows[0].emplace_back("held by");
    for (size_t i = 0; i < found.cards.size(); ++i) {
        const std::string &who = found.cards[i].held_by;
        rows[i + 1].push_back(who.empty() ? "-" : who);
    }
    return to_columns(rows);
}

/* A line for each way and reason; mostly that is one line. */
std::string list_pairs(const cJSON *groups)
{
    std::string text;
    const cJSON *group = nullptr;
    cJSON_ArrayForEach(group, groups)
    {
        const cJSON *pairs = cJSON_GetObjectItem(group, "cards");
        std::string cards  = "all " + std::to_string(cJSON_GetArraySize(pairs));
        if (cJSON_GetArraySize(groups) > 1) {
            cards.clear();
            const cJSON *pair = nullptr;
            cJSON_ArrayForEach(pair, pairs)
            {
                cards += (cards.empty() ? "" : " ") +
                         to_cell(cJSON_GetArrayItem(pair, 0)) + "-" +
                         to_cell(cJSON_GetArrayItem(pair, 1));
            }
        }
        text +=
            to_line("pairs", to_cell(cJSON_GetObjectItem(group, "way")) +
                                 " for " + cards + ": " +
                                 to_cell(cJSON_GetObjectItem(group, "why")));
    }
    return text;
}

/* --- JSON ------------------------------------------------------------------*/

/* Takes over the value. */
void add(cJSON *object, const char *name, cJSON *value)
{
    if (cJSON_AddItemToObject(object, name, value) == 0) {
        throw std::bad_alloc();
    }
}

cJSON *json(const std::string &text)
{
    return cJSON_CreateString(to_printable(text).c_str());
}

cJSON *json_or_null(const std::string &text)
{
    return text.empty() ? cJSON_CreateNull() : json(text);
}

/* Where no module answers. */
constexpr char no_answer[] =
    R"({"usable":false,"driver":{"setting":null,"file":null,"engine":null,)"
    R"("card_kind":null,"software":false,"sysfs":null},"cards":[],)"
    R"("pairs":[]})";

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
    std::string text;
    if (!found.cards.empty()) {
        text = to_table(found) + "\n" +
               list_pairs(cJSON_GetObjectItem(found.answer.get(), "pairs"));
    }
    text +=
        to_line("driver",
                or_none(found.driver_file) +
                    (found.answer == nullptr
                         ? ""
                         : " (UCX_GAUDI_DRIVER=" + found.driver_setting + ")") +
                    (found.software ? ", software cards" : "")) +
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

std::string to_json(const report &found, bool with_holders)
{
    const std::unique_ptr<cJSON, decltype(&cJSON_Delete)> all(
        (found.answer != nullptr) ? cJSON_Duplicate(found.answer.get(), 1)
                                  : cJSON_Parse(no_answer),
        &cJSON_Delete);
    cJSON *root = all.get();
    cJSON *card = nullptr;
    cJSON_ArrayForEach(card, cJSON_GetObjectItem(root, "cards"))
    {
        if (!with_holders) {
            cJSON_DeleteItemFromObject(card, "held_by");
        }
    }
    cJSON_ReplaceItemInObject(root, "usable",
                              cJSON_CreateBool(found.usable ? 1 : 0));
    cJSON *ucx     = cJSON_AddObjectToObject(root, "ucx");
    cJSON *module  = cJSON_AddObjectToObject(root, "module");
    cJSON *loading = cJSON_AddObjectToObject(root, "loading");
    add(ucx, "version", json_or_null(found.ucx.version));
    add(ucx, "libucp", json_or_null(found.ucx.libucp));
    add(ucx, "of", json(found.ucx.of));
    add(module, "path", json_or_null(found.module));
    cJSON *installed = cJSON_AddArrayToObject(module, "installed");
    for (const ucx_release &one : found.installed) {
        cJSON_AddItemToArray(installed, json(to_string(one)));
    }
    add(loading, "way", json(found.way));
    add(loading, "state", json(found.way_state));
    add(loading, "path", json(found.way_place));
    cJSON_DeleteItemFromObject(root, "problems");
    cJSON *wrong = cJSON_AddArrayToObject(root, "problems");
    for (const problem &one : found.missing) {
        cJSON *made = cJSON_CreateObject();
        add(made, "what", json(one.what));
        add(made, "fix", json(one.fix));
        cJSON_AddItemToArray(wrong, made);
    }
    const std::unique_ptr<char, decltype(&cJSON_free)> text(cJSON_Print(root),
                                                            &cJSON_free);
    if (text == nullptr) {
        throw std::bad_alloc();
    }
    return std::string(text.get()) + "\n";
}

} // namespace launcher
