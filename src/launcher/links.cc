/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/links.h"
#include "hlthunk_shim/ports/verbs_library.h"

#include "launcher/info.h"

namespace launcher {

namespace shim = gaudi::shim;

void add_links(const shim::driver &driver, report &all)
{
    const shim::library &lib = driver.lib();
    const shim::verbs_library verbs(lib);
    all.no_ports = verbs.reason();
    for (card &one : all.cards) {
        hlthunk_hw_ip_info info{};
        const int fd =
            lib.hlthunk_open_control(static_cast<int>(one.number), nullptr);
        if (fd < 0) {
            continue;
        }
        if (lib.hlthunk_get_hw_ip_info(fd, &info) == 0) {
            const shim::card_ports ports = shim::find_ports(info);
            one.port_map = ports.no_map.empty() ? ports.map.name : "";
            one.no_map   = (info.nic_ports_mask != 0) ? ports.no_map : "";
            one.links    = shim::list_links(ports, all.sys, one.number);
        }
        lib.hlthunk_close(fd);
        const std::string device = shim::verbs_device(one.number);
        if (all.no_ports.empty() && !verbs.has_device(device)) {
            all.no_ports = "there is no verbs device " + device;
        }
    }
}

} // namespace launcher
