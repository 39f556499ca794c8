/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/cards/routes.h"

#include "launcher/info.h"

#include <algorithm>

namespace launcher {

namespace {

namespace shim = gaudi::shim;
using shim::peer_to_peer;
using shim::wire;

constexpr char routes[] = "UCX_GAUDI_IPC_ROUTES";
constexpr char p2p[]    = "UCX_GAUDI_IPC_P2P";

/* As UCX reads it. Returns false for what is neither. */
bool read_wish(peer_to_peer &wish_p)
{
    if (variable_is(p2p, {"y", "yes", "on", "1"})) {
        wish_p = peer_to_peer::yes;
    } else if (variable_is(p2p, {"n", "no", "off", "0"})) {
        wish_p = peer_to_peer::no;
    } else {
        wish_p = peer_to_peer::automatic;
        return variable_is(p2p, {"", "auto"});
    }
    return true;
}

void refuse(const std::string &what, report &all)
{
    all.missing.push_back(
        {to_printable(what), "correct this variable, or unset it"});
    all.usable = false;
}

/* Whether ports lead from one card to another one, and why. Who has them when
 * that is wanted, nobody knows now. */
bool have_links(const card &own, const card &peer, const std::string &no_ports,
                std::string &why_p)
{
    unsigned all = 0;
    unsigned up  = 0;
    for (const shim::port_link &each : own.links) {
        const bool leads_there =
            each.end.is_card && (each.end.module_id == peer.module_id);
        all += leads_there ? 1 : 0;
        const bool may_be_up = each.is_up || each.state.empty();
        up += (leads_there && may_be_up) ? 1 : 0;
    }
    why_p = !no_ports.empty() && (up > 0) ? no_ports
            : (up > 0)  ? std::to_string(up) + " links, if HCL of a framework "
                                               "leaves them"
            : (all > 0) ? "no link is up"
            : own.links.empty() ? "the cards show no ports"
            : !own.no_map.empty()
                ? own.no_map
                : "no port leads there in a box " + own.port_map;
    return no_ports.empty() && (up > 0);
}

/* The first way that is there. */
pair_group choose(const std::vector<wire> &order, const card &own,
                  const card &peer, const std::string &no_ports,
                  const shim::pcie_path &path)
{
    const bool has_pcie = std::ranges::count(order, wire::pcie) > 0;
    std::string why;
    for (const wire one : order) {
        if (one == wire::host) {
            why = !why.empty() ? why
                  : has_pcie   ? std::string("first in ") + routes
                               : std::string("PCIe is not in ") + routes;
            return {{}, one, why};
        }
        const bool is_there = (one == wire::ports)
                                  ? have_links(own, peer, no_ports, why)
                                  : path.is_there;
        why                 = (one == wire::pcie) ? path.why : why;
        if (is_there) {
            return {{}, one, why};
        }
    }
    return {
        {}, std::nullopt, why.empty() ? std::string("not in ") + routes : why};
}

/* Add the ways of all pairs, in one order of preference. */
void add_ways(const std::vector<wire> &order, peer_to_peer wish,
              const std::string &sys, bool can_import, const report &all,
              std::vector<pair_group> &ways)
{
    for (auto own = all.cards.begin(); own != all.cards.end(); ++own) {
        for (auto peer = own + 1; peer != all.cards.end(); ++peer) {
            if (!own->name.has_value() || !peer->name.has_value()) {
                continue;
            }
            const pair_group found = choose(
                order, *own, *peer, all.no_ports,
                can_import
                    ? shim::find_pcie_path(sys, own->bus_id, peer->bus_id, wish)
                    : shim::pcie_path{false, "the kernel's driver cannot "
                                             "import dma-bufs"});
            auto same = std::ranges::find_if(ways, [&](const auto &one) {
                return (one.way == found.way) && (one.why == found.why);
            });
            if (same == ways.end()) {
                same = ways.insert(same, found);
            }
            same->pairs.emplace_back(*own->name, *peer->name);
        }
    }
}

} // namespace

void add_pairs(const std::string &sys, bool can_import, report &all)
{
    std::vector<wire> order;
    const std::string setting = get_variable(routes);
    const std::string fault   = shim::parse_routes(
          setting.empty() ? shim::default_routes : setting, order);
    if (!fault.empty()) {
        refuse(std::string(routes) + "=" + setting + ": " + fault, all);
    }
    peer_to_peer wish = peer_to_peer::automatic;
    if (!read_wish(wish)) {
        refuse(std::string(p2p) + "=" + get_variable(p2p) +
                   " is not auto, y or n",
               all);
    }
    if (order.empty()) {
        return;
    }
    add_ways(order, wish, sys, can_import, all, all.pairs);
    std::erase(order, wire::ports);
    add_ways(order, wish, sys, can_import, all, all.pairs_without_ports);
}

} // namespace launcher
