#include "uct/gaudi/base/cards/card.h"

#include "uct/gaudi/base/cards/topology.h"
#include "uct/gaudi/base/memory/device_pool.h"

#include <cstring>

namespace gaudi::base {

card::card(const shim::visible_card &self, unsigned slot,
           std::unique_ptr<shim::card> driver)
    : info_(self.info), slot_(slot), name_(self.name()),
      driver_(std::move(driver)),
      sys_device_(place_card(driver_->bus_id(), name_, info_.numa_node)),
      pool_(std::make_unique<device_pool>(*this))
{
    driver_->set_numa_node(info_.numa_node);
}

card::~card() = default;

uint64_t card::next_hint(uint64_t size)
{
    const shim::capabilities &known = driver_->capabilities();
    const uint64_t page             = known.page_bytes;
    if (page == 0) {
        return 0;
    }
    const uint64_t bytes = (size + page - 1) / page * page;
    if (hint_offset_ + bytes > known.window_bytes) {
        hint_offset_ = 0;
    }
    const uint64_t wished =
        known.memory_start + info_.index * known.window_bytes + hint_offset_;
    hint_offset_ += bytes;
    return known.next_page(wished);
}

bool card::window_contains(uint64_t address) const
{
    const shim::capabilities &known = driver_->capabilities();
    const uint64_t start =
        known.memory_start + info_.index * known.window_bytes;
    return (address >= start) && (address - start < known.window_bytes);
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
