/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways between cards. */
#include "hlthunk_shim/discovery/routes.h"

#include "hlthunk_shim/ports/links.h"
#include "hlthunk_shim/ports/verbs_library.h"
#include "hlthunk_shim/report/report.h"
#include "util/text.h"

#include <algorithm>
#include <filesystem>

namespace gaudi::shim {

namespace {

constexpr char variable[] = "UCX_GAUDI_IPC_ROUTES";

/* Whether ports lead from one card to another one, and why. Who has them when
 * that is wanted, nobody knows now. */
bool have_links(const reported_card &own, const reported_card &peer,
                const std::string &no_ports, std::string &why_p)
{
    unsigned all = 0;
    unsigned up  = 0;
    for (const port_link &each : own.links) {
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
pair_group choose(const std::vector<wire> &order, const reported_card &own,
                  const reported_card &peer, const std::string &no_ports)
{
    std::string why;
    for (const wire one : order) {
        if (one == wire::host) {
            return {{},
                    one,
                    why.empty() ? std::string("first in ") + variable : why};
        }
        if (have_links(own, peer, no_ports, why)) {
            return {{}, one, why};
        }
    }
    return {{}, std::nullopt, why};
}

/* The ports that are enabled, as sysfs shows them. */
std::vector<port_link> list_links(const card_ports &of, const std::string &sys,
                                  unsigned number)
{
    std::vector<port_link> links;
    for (unsigned port = 0; port < ports_of_card; ++port) {
        port_link link;
        link.port   = port;
        link.number = verbs_port(of.enabled, port);
        if (link.number == 0) {
            continue;
        }
        /* As in "5: LinkUp". */
        const auto folder = std::filesystem::path(sys) / "class/infiniband" /
                            verbs_device(number) / "ports" /
                            std::to_string(link.number);
        const std::string text = util::first_line(folder / "phys_state");
        const size_t name      = text.find(": ");
        link.state = (name != text.npos) ? text.substr(name + 2) : text;
        link.is_up = (link.state == "LinkUp");
        if (of.module_id < of.map.cards.size()) {
            link.end = of.map.cards[of.module_id][port];
        }
        links.push_back(std::move(link));
    }
    return links;
}

} // namespace

void add_links(const driver &of, report &all)
{
    const library &lib = of.lib();
    const verbs_library verbs(lib);
    all.no_ports = verbs.reason();
    for (reported_card &one : all.cards) {
        hlthunk_hw_ip_info info{};
        const int fd =
            lib.hlthunk_open_control(static_cast<int>(one.number), nullptr);
        if (fd < 0) {
            continue;
        }
        if (lib.hlthunk_get_hw_ip_info(fd, &info) == 0) {
            const card_ports ports = find_ports(info);
            one.port_map           = ports.no_map.empty() ? ports.map.name : "";
            one.no_map = (info.nic_ports_mask != 0) ? ports.no_map : "";
            one.links  = list_links(ports, all.sys, one.number);
        }
        lib.hlthunk_close(fd);
        const std::string device = verbs_device(one.number);
        if (all.no_ports.empty() && !verbs.has_device(device)) {
            all.no_ports = "there is no verbs device " + device;
        }
    }
}

bool add_pairs(const std::string &routes, report &all)
{
    std::vector<wire> order;
    const std::string fault = parse_routes(routes, order);
    if (!fault.empty()) {
        all.missing.push_back({util::to_printable(std::string(variable) + "=" +
                                                  routes + ": " + fault),
                               "correct this variable, or unset it"});
        return false;
    }
    for (auto own = all.cards.begin(); own != all.cards.end(); ++own) {
        for (auto peer = own + 1; peer != all.cards.end(); ++peer) {
            if (!own->name.has_value() || !peer->name.has_value()) {
                continue;
            }
            const pair_group found = choose(order, *own, *peer, all.no_ports);
            auto same = std::ranges::find_if(all.pairs, [&](const auto &one) {
                return (one.way == found.way) && (one.why == found.why);
            });
            if (same == all.pairs.end()) {
                same = all.pairs.insert(same, found);
            }
            same->pairs.emplace_back(*own->name, *peer->name);
        }
    }
    return true;
}

} // namespace gaudi::shim
