/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/port_maps.h"

#include "hlthunk_shim/discovery/json_text.h"

#include <cstdlib>
#include <utility>

namespace gaudi::shim {

namespace {

port_map make_map(const box_map &of)
{
    port_map made{of.name, {}};
    for (unsigned card = 0; card < of.cards; ++card) {
        auto &ports = made.cards.emplace_back();
        for (unsigned port = 0; port < ports_of_card; ++port) {
            ports[port] = of.end_of(card, port);
        }
    }
    return made;
}

/* --- files -----------------------------------------------------------------*/

/* As many as HCL has in one map, and more. */
constexpr int max_cards = 64;

/* Instead of one; -1, too. */
constexpr int no_card = -2;

std::string card_name(unsigned card)
{
    return "card " + std::to_string(card);
}

std::string end_name(unsigned card, unsigned port)
{
    return card_name(card) + ", port " + std::to_string(port);
}

/* @return What is wrong; empty: nothing. */
std::string read_ports(const cJSON *nics, unsigned card, int cards,
                       std::array<port_end, ports_of_card> &ports_p)
{
    unsigned port     = 0;
    const cJSON *each = nullptr;
    cJSON_ArrayForEach(each, nics)
    {
        json_members reader(each);
        const int peer = reader.integer("REMOTE_CARD", no_card, cards - 1);
        const int peer_port =
            reader.integer("REMOTE_NIC", 0, ports_of_card - 1);
        if (!reader.error().empty()) {
            return end_name(card, port) + ": " + reader.error();
        }
        port_end &end = ports_p[port++];
        if (peer >= 0) {
            end = {true, static_cast<unsigned>(peer),
                   static_cast<unsigned>(peer_port)};
        }
    }
    return "";
}

/* HCL does not look at that, and its connections then wait for ever. */
std::string find_asymmetry(const port_map &map)
{
    for (unsigned card = 0; card < map.cards.size(); ++card) {
        for (unsigned port = 0; port < ports_of_card; ++port) {
            const port_end &end = map.cards[card][port];
            if (!end.is_card) {
                continue;
            }
            if ((end.module_id == card) ||
                (map.cards[end.module_id][end.port] !=
                 port_end{true, card, port})) {
                return end_name(card, port) + " leads to " +
                       end_name(end.module_id, end.port) +
                       ", which does not lead back";
            }
        }
    }
    return "";
}

} // namespace

std::vector<port_pair> port_map::between(unsigned own, unsigned peer) const
{
    std::vector<port_pair> found;
    for (unsigned port = 0; (own < cards.size()) && (port < ports_of_card);
         ++port) {
        const port_end &end = cards[own][port];
        if (end.is_card && (end.module_id == peer)) {
            found.push_back({port, end.port});
        }
    }
    return found;
}

std::string parse_port_map(const std::string &json, port_map &map_p)
{
    std::string why;
    const json_value root = parse_json(json, why);
    if (root == nullptr) {
        return why;
    }
    json_members file(root.get());
    const cJSON *list = file.array("HCL_NICS", 1, max_cards);
    if (list == nullptr) {
        return file.error();
    }
    const int count = cJSON_GetArraySize(list);
    port_map made;
    made.cards.resize(static_cast<size_t>(count));
    std::vector<bool> seen(made.cards.size());
    const cJSON *each = nullptr;
    cJSON_ArrayForEach(each, list)
    {
        json_members reader(each);
        const auto card = static_cast<unsigned>(
            reader.integer("CARD_LOCATION", 0, count - 1));
        if (!reader.error().empty()) {
            return reader.error();
        }
        if (seen[card]) {
            return card_name(card) + " is there twice";
        }
        seen[card]        = true;
        const cJSON *nics = reader.array("NICS", ports_of_card, ports_of_card);
        why               = (nics != nullptr)
                                ? read_ports(nics, card, count, made.cards[card])
                                : card_name(card) + ": " + reader.error();
        if (!why.empty()) {
            return why;
        }
    }
    why = find_asymmetry(made);
    if (why.empty()) {
        map_p = std::move(made);
    }
    return why;
}

std::string find_port_map(unsigned server_type, const std::string &file,
                          port_map &map_p)
{
    if (!file.empty()) {
        const std::string which =
            std::string(port_map_variable) + "=" + file + ": ";
        std::string text;
        std::string why = read_json_file(file, text);
        if (why.empty()) {
            why = parse_port_map(text, map_p);
        }
        map_p.name = file;
        return why.empty() ? "" : which + why;
    }
    if (const box_map *known = find_box_map(server_type)) {
        map_p = make_map(*known);
        return "";
    }
    return "how ports are connected in this box (type " +
           std::to_string(server_type) + ") is not known: name a file with " +
           port_map_variable;
}

std::string port_map_file()
{
    const char *value = secure_getenv(port_map_variable);
    return (value != nullptr) ? value : "";
}

} // namespace gaudi::shim
