/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/ports.h"

#include "util/made_once.h"

namespace gaudi::base {

shim::port_device *card_ports::get(const shim::driver &driver,
                                   const shim::card &of, unsigned number,
                                   std::string &why_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (!tried_) {
        tried_ = true;
        why_   = open(driver, of, number);
    }
    why_p = why_;
    return device_.get();
}

std::string card_ports::open(const shim::driver &driver, const shim::card &of,
                             unsigned number)
{
    static util::made_once<shim::verbs_library> library;
    const std::string sys = driver.sysfs("/sys");
    if (!sys.empty() && !shim::has_verbs_device(sys, number)) {
        return "there is no verbs device " + shim::verbs_device(number);
    }
    return shim::port_device::open(driver.lib(), library.get([&] {
        return shim::verbs_library(driver.lib());
    }),
                                   of, number, device_);
}

} // namespace gaudi::base
