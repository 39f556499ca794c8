#include "uct/gaudi/base/card.h"

#include <cstdio>

namespace gaudi::base {

namespace {

/* Address space for the allocations of one card, bytes: many times its memory,
 * and room for 64 cards in Gaudi2's DRAM range of 256 TiB. */
constexpr uint64_t window_bytes = uint64_t{1} << 41;

/* Part of a device address in which DRAM pages are counted. */
constexpr uint64_t page_count_mask = 0xffffffffffff;

ucs_sys_device_t find_sys_device(const std::string &bus_id, const char *name)
{
    unsigned domain;
    unsigned bus;
    unsigned slot;
    unsigned function;
    if (std::sscanf(bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot,
                    &function) != 4) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }

    ucs_sys_bus_id_t id;
    ucs_sys_device_t sys_device;
    id.domain   = static_cast<uint16_t>(domain);
    id.bus      = static_cast<uint8_t>(bus);
    id.slot     = static_cast<uint8_t>(slot);
    id.function = static_cast<uint8_t>(function);
    if (ucs_topo_find_device_by_bus_id(&id, &sys_device) != UCS_OK) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    ucs_topo_sys_device_set_name(sys_device, name);
    return sys_device;
}

} // namespace

card::card(unsigned index, unsigned slot, std::unique_ptr<shim::device> device)
    : index_(index), slot_(slot), name_("gaudi" + std::to_string(index)),
      device_(std::move(device)),
      sys_device_(find_sys_device(device_->bus_id(), name_.c_str()))
{}

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
    const uint64_t wished = base + index_ * window_bytes + hint_offset_;
    hint_offset_ += bytes;

    const uint64_t counted = wished & page_count_mask;
    return (wished - counted) + (counted + page - 1) / page * page;
}

} // namespace gaudi::base
