/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/routes.h"

#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/config.h"
#include "util/made_once.h"
#include "util/process.h"
#include "util/text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace gaudi::base {

namespace {

struct known_routes {
    std::mutex lock;
    std::map<std::tuple<pci_address, pci_address, unsigned>,
             std::unique_ptr<pair_routes>>
        pairs;
};

const std::vector<shim::wire> &order()
{
    static util::made_once<std::vector<shim::wire>> wanted;
    return wanted.get([] {
        std::vector<shim::wire> result;
        const std::string wrong = shim::parse_routes(config().routes, result);
        if (!wrong.empty()) {
            ucs_error("UCX_GAUDI_IPC_ROUTES=%s %s: %s is taken",
                      util::to_printable(config().routes).c_str(),
                      wrong.c_str(), shim::name_of(shim::wire::host));
            result = {shim::wire::host}; /* others cannot write over that */
        }
        return result;
    });
}

std::string to_text(pci_address of)
{
    const auto all = static_cast<uint32_t>(of);
    char text[16];
    (void)snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", all >> 16,
                   (all >> 8) & 0xff, (all >> 3) & 0x1f, all & 7);
    return text;
}

/* @return Why the ports of a card cannot be opened; empty: they are. */
std::string open_ports(const card &of,
                       std::unique_ptr<shim::port_device> &ports_p)
{
    static util::made_once<shim::verbs_library> library;
    if (const char *why = of.device().why_no_ports()) {
        return why;
    }
    const unsigned number = of.info().number;
    const std::string sys = driver()->sysfs("/sys");
    if (!sys.empty() && !shim::has_verbs_device(sys, number)) {
        return "there is no verbs device " + shim::verbs_device(number);
    }
    const shim::library &lib = driver()->lib();
    return shim::port_device::open(
        lib, library.get([&] { return shim::verbs_library(lib); }), of.device(),
        number, ports_p);
}

/* Whether ports of a card lead to another one, whose process has to agree. */
bool have_ports(const card &from, pci_address to, unsigned module_to)
{
    std::string why;
    const shim::port_device *ports = ports_of(from, why);
    if (ports == nullptr) { /* which was said */
        return false;
    }
    const shim::card_ports &place = ports->place();
    const bool any = !place.map.between(place.module_id, module_to).empty();
    ucs_info("%s: %s ports to the card at %s%s%s", from.name().c_str(),
             any ? "uses" : "does not use", to_text(to).c_str(),
             any ? "" : ": none leads there in a box ",
             any ? "" : place.map.name.c_str());
    return any;
}

} // namespace

const pair_routes &find_routes(const card *from, pci_address to,
                               unsigned module_to)
{
    const pci_address own =
        (from != nullptr) ? from->address() : pci_address::unknown;
    const std::tuple pair(own, to, module_to);
    auto &known = util::of_this_process<known_routes>();
    {
        const std::lock_guard<std::mutex> guard(known.lock);
        const auto found = known.pairs.find(pair);
        if (found != known.pairs.end()) {
            return *found->second;
        }
    }
    auto made = std::make_unique<pair_routes>(pair_routes{own, to, {}});
    for (const shim::wire over : order()) {
        if ((over == shim::wire::host) ||
            ((from != nullptr) && have_ports(*from, to, module_to))) {
            made->all.add(over);
        }
    }
    const std::lock_guard<std::mutex> guard(known.lock);
    return *known.pairs.try_emplace(pair, std::move(made)).first->second;
}

shim::port_device *ports_of(const card &of, std::string &why_p)
{
    card_ports &ports = of.ports_;
    const std::lock_guard<std::mutex> guard(ports.lock_);
    if (!std::exchange(ports.tried_, true)) {
        ports.why_ = open_ports(of, ports.device_);
        if (ports.device_ == nullptr) {
            ucs_info("%s: does not use its ports: %s", of.name().c_str(),
                     ports.why_.c_str());
        }
    }
    why_p = ports.why_;
    return ports.device_.get();
}

bool may_go_over(shim::wire wanted)
{
    return std::find(order().begin(), order().end(), wanted) != order().end();
}

} // namespace gaudi::base
