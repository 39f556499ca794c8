/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/routes.h"

#include "util/text.h"

#include <algorithm>
#include <array>

namespace gaudi::shim {

namespace {

constexpr std::array all_wires = {wire::ports, wire::host};

} // namespace

const char *name_of(wire of)
{
    constexpr const char *names[] = {"ports", "host"};
    return names[static_cast<size_t>(of)];
}

std::string parse_routes(std::string_view text, std::vector<wire> &order_p)
{
    std::vector<wire> order;
    for (const std::string &name : util::split(text)) {
        const auto *const found = std::ranges::find(all_wires, name, name_of);
        if (found == all_wires.end()) {
            return "'" + name + "' is neither ports nor host";
        }
        if (std::ranges::find(order, *found) != order.end()) {
            return "'" + name + "' is listed twice";
        }
        order.push_back(*found);
    }
    order_p = std::move(order);
    return "";
}

} // namespace gaudi::shim
