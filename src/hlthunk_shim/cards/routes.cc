#include "hlthunk_shim/cards/routes.h"

#include <algorithm>
#include <array>

namespace gaudi::shim {

namespace {

constexpr std::array all_wires = {wire::ports, wire::pcie, wire::host};

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

pcie_path find_pcie_path(const std::string & /*sys_root*/,
                         const std::string &bus_id,
                         const std::string &peer_bus_id, peer_to_peer wish)
{
    if (bus_id == peer_bus_id) {
        return {true, "it is one card"};
    }
    if (wish != peer_to_peer::automatic) {
        const bool is_there = wish == peer_to_peer::yes;
        return {is_there,
                is_there ? "UCX_GAUDI_IPC_P2P=y" : "UCX_GAUDI_IPC_P2P=n"};
    }
    return {false, "sysfs does not show both cards; UCX_GAUDI_IPC_P2P=y if "
                   "they reach each other"};
}

} // namespace gaudi::shim
