/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/port_maps.h"

#include "hlthunk_shim/cards/json_text.h"

#include <cstdlib>
#include <span>
#include <utility>

namespace gaudi::shim {

namespace {

/* A row for each card: for each port the card at the other end and its port,
 * counted from a; "--" is no card. Facts of HabanaAI/HCL,
 * hcl/src/platform: connectivity_autogen_HLS2.cpp, _HLS2PCIE.cpp, _HLS3.cpp and
 * _HLS3PCIE.cpp. Cards that follow are connected among themselves as these are:
 * two groups of four in the boxes of PCIe cards, two of eight in a rack
 * (connectivity_autogen_HLS3Rack.cpp). */
constexpr const char *hls2[] = {
    "3a3b7c3d7e7f4g4h--4j2q2r2s1n1o1p6q6r6s5t5u5v----",
    "2a2b6c2d6e6f5g5h--5j7k7l7m0n0o0p3q3r3s4t4u4v----",
    "1a1b5c1d5e5f6g6h--6j3k3l3m4n4o4p0k0l0m7t7u7v----",
    "0a0b4c0d4e4f7g7h--7j2k2l2m5n5o5p1q1r1s6t6u6v----",
    "7a7b3c7d3e3f0g0h--0j5k5l5m2n2o2p6k6l6m1t1u1v----",
    "6a6b2c6d2e2f1g1h--1j4k4l4m3n3o3p7q7r7s0t0u0v----",
    "5a5b1c5d1e1f2g2h--2j4q4r4s7n7o7p0q0r0s3t3u3v----",
    "4a4b0c4d0e0f3g3h--3j1k1l1m6n6o6p5q5r5s2t2u2v----",
};
constexpr const char *hls3[] = {
    "1m1n3e3f2m2n5m5n4a4b7a7b6m6n6e7r4s--5i2h----1l3w",
    "5k5l7q6f5g--4u3t----2l0w0a0b2q2r3a3b4w4x6o6p7w7x",
    "6k6l4q5f6g--7u0t----3x1k0e0f3c3d1o1p5q5r4c4d7c7d",
    "1q1r2o2p0c0d5o5p7e7f4e4f6q6r5e4r7s--6i1h----0x2k",
    "0i0j2u2v3k3l5u5v7i7j6s6t6b5a----2c3p0q--1g7v1s1t",
    "4n7m----3o2d1e--0s6j1a1b0g0h3g3h2s2t6u6v4g4h7g7h",
    "7n4m----0o1d2e--3s5j2a2b0m0n1u1v3m3n4k4l5s5t7k7l",
    "0k0l2w2x3i3j5w5x4i4j6w6x5b6a----1c0p3q--2g4v1w1x",
};
constexpr const char *hl288[] = {
    "1a1b1c1d1e1f--------3k3l3m3n3o3p2q2r2s2t2u2v----",
    "0a0b0c0d0e0f--------2k2l2m2n2o2p3q3r3s3t3u3v----",
    "3a3b3c3d3e3f--------1k1l1m1n1o1p0q0r0s0t0u0v----",
    "2a2b2c2d2e2f--------0k0l0m0n0o0p1q1r1s1t1u1v----",
};
constexpr const char *hl338[] = {
    "----1c1d1e1f1g1h--------3m3n3o3p2q2r3s3t2u2v2w2x",
    "----0c0d0e0f0g0h--------2m2n2o2p3q3r2s2t3u3v3w3x",
    "----3c3d3e3f3g3h--------1m1n1o1p0q0r1s1t0u0v0w0x",
    "----2c2d2e2f2g2h--------0m0n0o0p1q1r0s0t1u1v1w1x",
};

struct kind_of_box {
    unsigned server_type; /* enum hl_server_type of habanalabs_accel.h */
    const char *name;
    std::span<const char *const> cards;
    unsigned groups;
};

/* Which table HCL takes for which: hcl_device_config.cpp. */
constexpr kind_of_box boxes[] = {
    {5, "HLS-2", hls2, 1},        {7, "HLS-2", hls2, 1},
    {10, "HLS-3", hls3, 1},       {13, "HL-338", hl338, 2},
    {14, "HL-288", hl288, 2},     {15, "Gaudi3 rack", hls2, 2},
    {16, "Gaudi3 rack", hls2, 2},
};

port_map make_map(const kind_of_box &of)
{
    port_map made{of.name, {}};
    for (unsigned group = 0; group < of.groups; ++group) {
        const auto first = static_cast<unsigned>(made.cards.size());
        for (const char *row : of.cards) {
            auto &ports = made.cards.emplace_back();
            for (port_end &end : ports) {
                const char card = *row++;
                const char port = *row++;
                if (card != '-') {
                    end = {true, first + static_cast<unsigned>(card - '0'),
                           static_cast<unsigned>(port - 'a')};
                }
            }
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
    for (const kind_of_box &box : boxes) {
        if (box.server_type == server_type) {
            map_p = make_map(box);
            return "";
        }
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
