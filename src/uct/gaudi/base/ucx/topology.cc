#include "uct/gaudi/base/ucx/topology.h"

#include "uct/gaudi/base/ucx/status.h"

#include <cstring>

extern "C" {
#include <ucs/arch/cpu.h>
}

namespace gaudi::base {

namespace {

ucs_topo_get_distance_func_t sysfs_get_distance = nullptr;
distance_function rate                          = nullptr;

/* UCX's figures for devices on two sockets. */
constexpr double machine_latency     = 500e-9;
constexpr double machine_bandwidth   = 220.0 * UCS_MBYTE;
constexpr double machine_bandwidth_2 = 5100.0 * UCS_MBYTE; /* AMD Rome, Milan */

ucs_status_t get_distance(ucs_sys_device_t first, ucs_sys_device_t second,
                          ucs_sys_dev_distance_t *distance) noexcept
{
    const ucs_status_t status = sysfs_get_distance(first, second, distance);
    if ((first == second) || (first == UCS_SYS_DEVICE_ID_UNKNOWN) ||
        (second == UCS_SYS_DEVICE_ID_UNKNOWN)) {
        return status;
    }
    return guarded([&] {
        const auto rated =
            rate(first, second,
                 (status == UCS_OK) ? std::optional(*distance) : std::nullopt);
        if (!rated.has_value()) {
            return status;
        }
        *distance = *rated;
        return UCS_OK;
    });
}

/* Named as UCX's own, in front of which it is. */
ucs_sys_topo_method_t method = {"sysfs", get_distance, {}};

} // namespace

void init_topology(distance_function rating)
{
    rate = rating;
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
    return device;
}

std::string bus_id_of(ucs_sys_device_t device)
{
    char name[UCS_SYS_BDF_NAME_MAX];
    return ucs_topo_sys_device_bdf_name(device, name, sizeof(name));
}

ucs_sys_dev_distance_t across_sockets()
{
    const ucs_cpu_model_t cpu = ucs_arch_get_cpu_model();
    const bool fast =
        (cpu == UCS_CPU_MODEL_AMD_ROME) || (cpu == UCS_CPU_MODEL_AMD_MILAN);
    return {.latency   = machine_latency,
            .bandwidth = fast ? machine_bandwidth_2 : machine_bandwidth};
}

} // namespace gaudi::base
