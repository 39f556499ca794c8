/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/boxes/way_out.h"

#include "uct/gaudi/base/cards/routes.h"

#include <cstring>

namespace gaudi::ipc {

std::string find_way_out(const base::held_cards &cards, way_out &way_p)
{
    std::string why = "this process has no card";
    (void)cards.find_open([&](base::card &each) {
        shim::port_device *const ports = base::ports_of(each, why);
        if (ports == nullptr) {
            return false;
        }
        const bool is_gaudi2 = (ports->kind() == shim::generation::gaudi2);
        const shim::card_ports &place = ports->place();
        const auto all =
            place.map.between(place.module_id, shim::port_map::outside);
        why = "its card has no external ports";
        for (const auto &[number, _] : all) {
            const shim::port *const port = ports->find(number, why);
            if (port == nullptr) {
                continue;
            }
            if (!shim::is_ipv4(port->gid())) {
                why = "port " + std::to_string(number) + " has no IPv4 address";
                continue;
            }
            way_p.card = &each;
            way_p.bandwidth =
                (is_gaudi2 ? 12.5e9 : 25e9) * static_cast<double>(all.size());
            std::memcpy(&way_p.address, &port->gid().raw[12],
                        sizeof(way_p.address));
            why.clear();
            return true;
        }
        return false;
    });
    return why;
}

} // namespace gaudi::ipc
