#include "uct/gaudi/base/cards/ports.h"

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/cards/driver.h"
#include "util/made_once.h"

namespace gaudi::base {

shim::port_device *card_ports::get(const card &of, std::string &why_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (!tried_) {
        tried_ = true;
        why_   = open(of);
    }
    why_p = why_;
    return device_.get();
}

std::string card_ports::open(const card &of)
{
    static util::made_once<shim::verbs_library> library;
    const shim::driver &driver = *base::driver();
    const std::string sys      = driver.sysfs("/sys");
    const unsigned number      = of.info().number;
    if (!sys.empty() && !shim::has_verbs_device(sys, number)) {
        return "there is no verbs device " + shim::verbs_device(number);
    }
    return shim::port_device::open(driver.lib(), library.get([&] {
        return shim::verbs_library(driver.lib());
    }),
                                   of.device(), number, device_);
}

std::string why_no_ports(const card &from, unsigned module_to)
{
    std::string why;
    const shim::port_device *ports = from.ports(why);
    if (ports == nullptr) {
        return why;
    }
    const shim::card_ports &place = ports->place();
    return place.map.between(place.module_id, module_to).empty()
               ? "none leads there in a box " + place.map.name
               : "";
}

} // namespace gaudi::base
