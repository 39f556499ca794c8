/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/card.h"

#include "hlthunk_shim/discovery/mapping_table.h"
#include "uct/gaudi/base/ucx/topology.h"

#include <cstdio>
#include <cstring>

namespace gaudi::base {

card *held_cards::find_named(const char *name) const
{
    return find_open([&](const card &candidate) {
        return (name == nullptr) || candidate.is_called(name);
    });
}

pci_address to_pci_address(const std::string &bus_id)
{
    unsigned domain   = 0;
    unsigned bus      = 0;
    unsigned device   = 0;
    unsigned function = 0;
    const bool fits   = (sscanf(bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus,
                                &device, &function) == 4) &&
                      (domain <= 0xffff) && (bus <= 0xff) && (device <= 0x1f) &&
                      (function <= 7);
    return fits ? pci_address{(domain << 16) | (bus << 8) | (device << 3) |
                              function}
                : pci_address::unknown;
}

bool card::is_called(const char *name) const
{
    return (name_ == name) || (name_ == std::string("gaudi") + name) ||
           (device_->bus_id() == shim::normalize_bus_id(name));
}

card::card(const shim::visible_card &self, std::unique_ptr<shim::card> device,
           const shim::node_identity &node, bool adopted, open_cards &home)
    : info_(self.info), name_(self.name()),
      address_(to_pci_address(device->bus_id())), device_(std::move(device)),
      node_(node), adopted_(adopted), home_(home),
      sys_device_(add_system_device(device_->bus_id(), name_, info_.numa_node))
{
    device_->set_numa_node(info_.numa_node);
}

void open_cards::publish(std::shared_ptr<card> added)
{
    std::vector<card *> list(all().begin(), all().end());
    added->place_ = list.size();
    list.push_back(added.get());
    owned_.push_back(std::move(added));
    lists_.push_front(std::move(list));
    newest_.store(&lists_.front(), std::memory_order_release);
}

open_cards::owned_cards open_cards::take()
{
    newest_ = nullptr;
    lists_.clear();
    return std::exchange(owned_, {});
}

void find_local_cpus(const card *of, ucs_cpu_set_t &cpus)
{
    std::vector<unsigned> numbers;
    UCS_CPU_ZERO(&cpus);
    if (of != nullptr) {
        (void)shim::parse_cpu_list(of->info().local_cpus, numbers);
    }
    bool any = false;
    for (unsigned cpu : numbers) {
        if (cpu < UCS_CPU_SETSIZE) {
            UCS_CPU_SET(cpu, &cpus);
            any = true;
        }
    }
    if (!any) {
        std::memset(&cpus, 0xff, sizeof(cpus));
    }
}

} // namespace gaudi::base
