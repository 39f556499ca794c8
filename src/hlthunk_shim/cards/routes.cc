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

constexpr std::array all_wires = {wire::ports, wire::host};

fs::path place_of(const std::string &sys_root, const std::string &bus_id)
{
    return fs::path(sys_root) / "bus/pci/devices" / bus_id;
}

} // namespace

const char *name_of(wire of)
{
    constexpr const char *names[] = {"ports", "host"};
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
            return "'" + name + "' is neither ports nor host";
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

std::string iommu_type(const std::string &sys_root, const std::string &bus_id)
{
    return util::first_line(place_of(sys_root, bus_id) / "iommu_group/type");
}

bool is_translating(const std::string &iommu_type)
{
    return iommu_type.starts_with("DMA");
}

} // namespace gaudi::shim
