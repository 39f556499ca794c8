#include "uct/gaudi/base/cards/ports.h"

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/cards/driver.h"
#include "util/made_once.h"

namespace gaudi::base {

shim::port_device *card_ports::get(const card &of, std::string &why_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (!tried_) {
        static util::made_once<shim::verbs_library> library;
        const auto &driver = base::driver()->lib();
        why_               = shim::port_device::open(
                          driver, library.get([&] { return shim::verbs_library(driver); }),
                          of.device(), of.info().number, device_);
        tried_ = true;
    }
    why_p = why_;
    return device_.get();
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
