#include "uct/gaudi/base/topology.h"

#include <array>
#include <atomic>
#include <cstring>

namespace gaudi::base {

namespace {

ucs_topo_get_distance_func_t sysfs_get_distance = nullptr;

/* Indexed by system device, a byte in this UCX. */
std::array<std::atomic<bool>, UINT8_MAX + 1> is_card;
static_assert(sizeof(ucs_sys_device_t) == 1);

/* As far as sysfs knows; a card that it does not know is near, as UCX assumes
 * of devices without a bus id. */
ucs_status_t get_distance(ucs_sys_device_t first, ucs_sys_device_t second,
                          ucs_sys_dev_distance_t *distance) noexcept
{
    ucs_status_t status = sysfs_get_distance(first, second, distance);
    if ((status != UCS_OK) && (is_card[first] || is_card[second])) {
        *distance = ucs_topo_default_distance;
        return UCS_OK;
    }
    return status;
}

ucs_sys_topo_method_t method = {"sysfs", get_distance, {}};

} // namespace

void init_topology()
{
    ucs_sys_topo_method_t *existing;
    ucs_list_for_each(existing, &ucs_sys_topo_methods_list, list)
    {
        if (std::strcmp(existing->name, method.name) == 0) {
            sysfs_get_distance = existing->get_distance;
            ucs_list_add_head(&ucs_sys_topo_methods_list, &method.list);
            return;
        }
    }
}

ucs_sys_device_t add_system_device(const std::string &bus_id,
                                   const std::string &name)
{
    ucs_sys_device_t device;
    if ((ucs_topo_find_device_by_bdf_name(bus_id.c_str(), &device) != UCS_OK) ||
        (device == UCS_SYS_DEVICE_ID_UNKNOWN)) {
        ucs_debug("%s: UCX has no system device for %s", name.c_str(),
                  bus_id.c_str());
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    ucs_topo_sys_device_set_name(device, name.c_str());
    is_card[device] = true;
    return device;
}

} // namespace gaudi::base
