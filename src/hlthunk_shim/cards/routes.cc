/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/cards/routes.h"

#include "hlthunk_shim/cards/card_info.h"
#include "util/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gaudi::shim {

namespace {

namespace fs = std::filesystem;

constexpr std::array all_wires = {wire::ports, wire::pcie, wire::host};

fs::path place_of(const std::string &sys_root, const std::string &bus_id)
{
    return fs::path(sys_root) / "bus/pci/devices" / bus_id;
}

/* The functions on the way from the root complex to a card, which come last:
 * the folders below that of the host bridge, pciDDDD:BB. None: sysfs does not
 * show where the card is, or another device has its bus id. */
std::vector<fs::path> find_way(const std::string &sys_root,
                               const std::string &bus_id)
{
    std::vector<fs::path> way;
    fs::path function = util::real_path(place_of(sys_root, bus_id));
    if (sys_root.empty() || function.empty() ||
        (util::first_line(function / "vendor") != gaudi_vendor)) {
        return way;
    }
    for (; function.has_relative_path(); function = function.parent_path()) {
        const std::string name = function.filename().string();
        if (name.starts_with("pci") && (name.find(':') != name.npos)) {
            std::ranges::reverse(way);
            return way;
        }
        way.push_back(function);
    }
    return {};
}

enum class acs { lets_pass, redirects, unknown };

/* Access Control Services of a function, as pci_bridge_has_acs_redir in
 * p2pdma.c judges them: redirection of requests or completions, or control of
 * egress, makes it send what is for a neighbour to the root complex. They are
 * in the extended configuration space, of which users without CAP_SYS_ADMIN
 * see nothing (pci_read_config in drivers/pci/pci-sysfs.c). */
acs find_acs(const fs::path &function)
{
    constexpr size_t first_extended = 0x100;
    constexpr size_t all_bytes      = 0x1000;
    constexpr uint32_t acs_id       = 0x0d;
    constexpr uint32_t redirection  = 0x04 | 0x08 | 0x20;

    std::ifstream file(function / "config", std::ios::binary);
    const std::string config{std::istreambuf_iterator<char>(file), {}};
    if (config.size() < first_extended) {
        return acs::unknown;
    }
    const auto read = [&](size_t at) {
        uint32_t value = 0;
        for (size_t i = 4; (i-- > 0) && (at + 4 <= config.size());) {
            value = (value << 8) | static_cast<uint8_t>(config[at + i]);
        }
        return value;
    };
    /* Each has a header: its id, 16 bits, a version, and the offset of the
     * next one. A chain that has more of them than fit is a circle. */
    size_t at = first_extended;
    for (size_t i = 0; (at >= first_extended) && (i < all_bytes / 8); ++i) {
        const uint32_t header = read(at);
        if ((header & 0xffff) == acs_id) {
            return ((read(at + 4) >> 16) & redirection) ? acs::redirects
                                                        : acs::lets_pass;
        }
        at = header >> 20;
    }
    return acs::lets_pass;
}

} // namespace

const char *name_of(wire of)
{
    constexpr const char *names[] = {"ports", "pcie", "host"};
    return names[static_cast<size_t>(of)];
}

std::string parse_routes(std::string_view text, std::vector<wire> &order_p)
{
    std::vector<wire> order;
    for (size_t start = 0; start <= text.size();) {
        const size_t comma = std::min(text.find(',', start), text.size());
        const std::string name(text.substr(start, comma - start));
        const auto *const found = std::ranges::find(all_wires, name, name_of);
        if (found == all_wires.end()) {
            return "'" + name + "' is not ports, pcie or host";
        }
        if (std::ranges::find(order, *found) != order.end()) {
            return "'" + name + "' is listed twice";
        }
        order.push_back(*found);
        start = comma + 1;
    }
    order_p = std::move(order);
    return "";
}

pcie_path find_pcie_path(const std::string &sys_root, const std::string &bus_id,
                         const std::string &peer_bus_id, peer_to_peer wish)
{
    if (bus_id == peer_bus_id) {
        return {true, "it is one card"};
    }
    if (wish == peer_to_peer::yes) {
        return {true, "UCX_GAUDI_IPC_P2P=y"};
    }
    if (wish == peer_to_peer::no) {
        return {false, "UCX_GAUDI_IPC_P2P=n"};
    }

    const auto own  = find_way(sys_root, bus_id);
    const auto peer = find_way(sys_root, peer_bus_id);
    if (own.empty() || peer.empty()) {
        return {false, "sysfs does not show where they are; set "
                       "UCX_GAUDI_IPC_P2P=y if they reach each other"};
    }
    const auto parting = std::ranges::mismatch(own, peer);
    if (parting.in1 == own.begin()) {
        return {false, "only the root complex joins them; set "
                       "UCX_GAUDI_IPC_P2P=y if it forwards between cards"};
    }
    /* The importer gets an address of its own (dma_map_resource in set_dma_sg,
     * memory.c of drivers/accel/habanalabs), which no bridge knows. */
    const std::string type = iommu_type(sys_root, bus_id);
    if (is_translating(type)) {
        return {false, "the IOMMU translates (" + type +
                           "), which leads all to the root complex; boot with "
                           "iommu=pt"};
    }
    const fs::path &shared = *std::prev(parting.in1);
    std::vector<fs::path> between(parting.in1, own.end());
    between.insert(between.end(), parting.in2, peer.end());
    between.push_back(shared);
    for (const fs::path &each : between) {
        const acs found        = find_acs(each);
        const std::string name = each.filename().string();
        if (found == acs::redirects) {
            return {false, "ACS of " + name + " redirects between its ports"};
        }
        if (found == acs::unknown) {
            return {false, "only root can read the ACS of " + name +
                               "; ask ucx-gaudi info as root, then set "
                               "UCX_GAUDI_IPC_P2P=y if they reach each other"};
        }
    }
    return {true, std::string("they share the ") +
                      ((shared == own.front()) ? "root port " : "switch ") +
                      shared.filename().string()};
}

std::string iommu_type(const std::string &sys_root, const std::string &bus_id)
{
    return util::first_line(place_of(sys_root, bus_id) / "iommu_group/type");
}

bool is_translating(const std::string &iommu_type)
{
    return iommu_type.starts_with("DMA");
}

} // namespace gaudi::shim
