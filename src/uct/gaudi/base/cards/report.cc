/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/report.h"

#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"

namespace gaudi::base {

shim::report make_report()
{
    shim::report all;
    all.driver_setting         = config().driver;
    all.engine                 = name_of_engine();
    all.card_kind              = name_of_card_kind();
    const shim::driver *loaded = driver();
    if (loaded != nullptr) {
        shim::add_box(*loaded, config().routes, all);
    } else if (!driver_problem().what.empty()) {
        all.missing.push_back(driver_problem());
    }
    if (!has_usable_protocols()) {
        all.missing.push_back({"UCX_PROTO_ENABLE=n chooses protocols that this "
                               "UCX cannot use with device memory",
                               "leave it unset, or set it to y"});
        all.usable = false;
    }
    if (!allows_ipc_device()) {
        all.missing.push_back({"UCX_SHM_DEVICES leaves out gaudi_ipc, whose "
                               "device is gaudi",
                               "add gaudi to it, or leave it unset"});
        all.usable = false;
    }
    return all;
}

} // namespace gaudi::base
