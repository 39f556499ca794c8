/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/mapping_table.h"

#include "hlthunk_shim/discovery/json_text.h"
#include "util/text.h"

#include <cctype>

namespace gaudi::shim {

namespace {

mapping_table no_table(const std::string &why)
{
    return {{}, why};
}

/* What can be quoted in a message: short, and without control characters. */
std::string quote(const std::string &text)
{
    constexpr size_t longest = 40;
    return "'" + util::to_printable(text.substr(0, longest)) +
           ((text.size() > longest) ? "...'" : "'");
}

/* What an entry has in common with an earlier one; empty: nothing. */
std::string find_duplicate(const std::vector<mapping_entry> &earlier,
                           const mapping_entry &entry)
{
    for (size_t i = 0; i < earlier.size(); ++i) {
        const std::string what =
            (earlier[i].index == entry.index)
                ? "index " + std::to_string(entry.index)
            : (earlier[i].module_id == entry.module_id)
                ? "module_id " + std::to_string(entry.module_id)
            : (earlier[i].bus_id == entry.bus_id) ? "bus_id " + entry.bus_id
                                                  : "";
        if (!what.empty()) {
            return what + " is entry " + std::to_string(i + 1) + "'s already";
        }
    }
    return "";
}

} // namespace

std::string normalize_bus_id(const std::string &text)
{
    constexpr std::string_view with_domain = "xxxx:xx:xx.x";
    std::string full = (text.size() == 7) ? "0000:" + text : text;
    if (full.size() != with_domain.size()) {
        return "";
    }
    for (size_t i = 0; i < full.size(); ++i) {
        const auto letter = static_cast<unsigned char>(full[i]);
        if ((with_domain[i] == 'x') ? (std::isxdigit(letter) == 0)
                                    : (full[i] != with_domain[i])) {
            return "";
        }
        full[i] = static_cast<char>(std::tolower(letter));
    }
    return full;
}

bool is_mapping_text(const std::string &value)
{
    const size_t first = value.find_first_not_of(" \t\r\n");
    return (first != value.npos) && (value[first] == '[');
}

mapping_table parse_mapping_table(const std::string &json)
{
    std::string why;
    const json_value root = parse_json(json, why);
    if (root == nullptr) {
        return no_table(why);
    }
    if (!cJSON_IsArray(root.get())) {
        return no_table(std::string("it is ") + json_kind(*root) +
                        ", not an array of objects");
    }

    mapping_table result;
    const cJSON *each = nullptr;
    cJSON_ArrayForEach(each, root.get())
    {
        const std::string where =
            "entry " + std::to_string(result.entries.size() + 1) + ": ";
        if (result.entries.size() == max_mapping_entries) {
            return no_table(where + "there are more than " +
                            std::to_string(max_mapping_entries));
        }
        if (!cJSON_IsObject(each)) {
            return no_table(where + "it is " + json_kind(*each) +
                            ", not an object");
        }
        json_members reader(each);
        const auto number = [&](const char *name) {
            return static_cast<unsigned>(
                reader.integer(name, 0, int{max_mapping_number}));
        };
        mapping_entry entry{};
        entry.index            = number("index");
        entry.module_id        = number("module_id");
        const std::string text = reader.text("bus_id");
        entry.bus_id           = normalize_bus_id(text);
        if (entry.bus_id.empty()) {
            reader.fail("bus_id", "is " + quote(text) +
                                      ", not a bus id like 0000:19:00.0");
        }
        if (!reader.error().empty()) {
            return no_table(where + reader.error());
        }
        const std::string duplicate = find_duplicate(result.entries, entry);
        if (!duplicate.empty()) {
            return no_table(where + duplicate);
        }
        result.entries.push_back(std::move(entry));
    }
    return result;
}

mapping_table read_mapping_table(const std::string &value)
{
    if (is_mapping_text(value)) {
        return parse_mapping_table(value);
    }

    std::string text;
    const std::string why = read_json_file(value, text);
    if (!why.empty()) {
        return no_table(why);
    }
    return parse_mapping_table(text);
}

} // namespace gaudi::shim
