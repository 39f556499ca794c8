/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/links.h"

#include <bit>
#include <filesystem>

namespace gaudi::shim {

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
    return !sys.empty() && std::filesystem::exists(std::filesystem::path(sys) /
                                                       "class/infiniband" /
                                                       verbs_device(number),
                                                   error);
}

unsigned verbs_port(uint64_t enabled, unsigned port)
{
    return ((port < 64) && (((enabled >> port) & 1) != 0))
               ? 1 + static_cast<unsigned>(
                         std::popcount(enabled & ((uint64_t{1} << port) - 1)))
               : 0;
}

} // namespace gaudi::shim
