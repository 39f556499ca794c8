#include "uct/gaudi/base/cards/card.h"

#include "uct/gaudi/base/cards/topology.h"
#include "uct/gaudi/base/memory/device_pool.h"

#include <algorithm>
#include <cstring>

namespace gaudi::base {

namespace {

/* Where the DRAM addresses of Gaudi2 end. */
constexpr uint64_t gaudi2_dram_end = 0x1002000000000000;

/* Part of a device address in which DRAM pages are counted. */
constexpr uint64_t page_count_mask = 0xffffffffffff;

} // namespace

card::card(const shim::visible_card &self, unsigned slot,
           std::unique_ptr<shim::device> device)
    : info_(self.info), slot_(slot), name_(self.name()),
      device_(std::move(device)),
      sys_device_(place_card(device_->bus_id(), name_, info_.numa_node)),
      pool_(std::make_unique<device_pool>(*this))
{
    device_->set_numa_node(info_.numa_node);
}

card::~card() = default;

uint64_t card::next_hint(uint64_t size)
{
    const uint64_t page = device_->hw_info().dram_page_size;
    if (page == 0) {
        return 0;
    }
    const uint64_t bytes = (size + page - 1) / page * page;
    if (hint_offset_ + bytes > window_bytes) {
        hint_offset_ = 0;
    }
    const uint64_t base   = device_->hw_info().dram_base_address;
    const uint64_t wished = base + info_.index * window_bytes + hint_offset_;
    hint_offset_ += bytes;

    const uint64_t counted = wished & page_count_mask;
    return (wished - counted) + (counted + page - 1) / page * page;
}

std::pair<uint64_t, uint64_t> card::dram_window() const
{
    const auto &info     = device_->hw_info();
    const uint64_t start = info.dram_base_address;
    return {start, std::max(gaudi2_dram_end, start + info.dram_size)};
}

bool card::window_contains(uint64_t address) const
{
    const uint64_t start =
        device_->hw_info().dram_base_address + info_.index * window_bytes;
    return (address >= start) && (address - start < window_bytes);
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
