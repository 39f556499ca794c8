#include "uct/gaudi/base/topology.h"

#include "uct/gaudi/base/ucx.h"

#include <cstring>

namespace gaudi::base {

namespace {

ucs_topo_get_distance_func_t sysfs_get_distance = nullptr;

/* As far as sysfs knows; what it does not know is near, as UCX assumes of
 * devices without a bus id. */
ucs_status_t get_distance(ucs_sys_device_t first, ucs_sys_device_t second,
                          ucs_sys_dev_distance_t *distance) noexcept
{
    ucs_status_t status = sysfs_get_distance(first, second, distance);
    if (status != UCS_OK) {
        *distance = ucs_topo_default_distance;
    }
    return UCS_OK;
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

} // namespace gaudi::base
