#include "uct/gaudi/base/cards/card.h"

#include "uct/gaudi/base/cards/topology.h"

#include <cstring>

namespace gaudi::base {

card::card(const shim::visible_card &self, unsigned slot,
           std::unique_ptr<shim::card> device)
    : info_(self.info), slot_(slot), name_(self.name()),
      device_(std::move(device)),
      sys_device_(place_card(device_->bus_id(), name_, info_.numa_node))
{
    device_->set_numa_node(info_.numa_node);
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
