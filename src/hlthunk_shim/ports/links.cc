/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/links.h"

#include "util/text.h"

#include <bit>
#include <filesystem>

namespace gaudi::shim {

namespace {

std::filesystem::path folder_of(const std::string &sys, unsigned number)
{
    return std::filesystem::path(sys) / "class/infiniband" /
           verbs_device(number);
}

} // namespace

card_ports find_ports(const hlthunk_hw_ip_info &info)
{
    card_ports found;
    found.module_id = info.module_id;
    found.enabled   = info.nic_ports_mask;
    found.no_map = find_port_map(info.server_type, port_map_file(), found.map);
    return found;
}

std::string verbs_device(unsigned number)
{
    return "hbl_" + std::to_string(number);
}

bool has_verbs_device(const std::string &sys, unsigned number)
{
    std::error_code error;
    return !sys.empty() &&
           std::filesystem::exists(folder_of(sys, number), error);
}

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
        const auto folder =
            folder_of(sys, number) / "ports" / std::to_string(link.number);
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

unsigned verbs_port(uint64_t enabled, unsigned port)
{
    return ((port < 64) && (((enabled >> port) & 1) != 0))
               ? 1 + static_cast<unsigned>(
                         std::popcount(enabled & ((uint64_t{1} << port) - 1)))
               : 0;
}

} // namespace gaudi::shim
