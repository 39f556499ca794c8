#include "uct/gaudi/base/ucx/topology.h"

#include "uct/gaudi/base/ucx/status.h"

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>

extern "C" {
#include <ucs/arch/cpu.h>
}

namespace gaudi::base {

namespace {

ucs_topo_get_distance_func_t sysfs_get_distance = nullptr;

/* What is known of a system device: not a card of ours, a card whose node is
 * unknown, or two more than the node of a card. Indexed by system device, a
 * byte in this UCX. */
constexpr unsigned no_card     = 0;
constexpr unsigned nodeless    = 1;
constexpr unsigned first_known = 2;
std::array<std::atomic<unsigned>, UINT8_MAX + 1> cards;
static_assert(sizeof(ucs_sys_device_t) == 1);

/* What UCX's method says of two devices below one host bridge that are farthest
 * from each other. */
constexpr double bridge_latency   = 300e-9;
constexpr double bridge_bandwidth = 3500.0 * UCS_MBYTE;
/* And of devices whose only common parent is the machine. */
constexpr double machine_latency     = 500e-9;
constexpr double machine_bandwidth   = 220.0 * UCS_MBYTE;
constexpr double machine_bandwidth_2 = 5100.0 * UCS_MBYTE; /* AMD Rome, Milan */

ucs_sys_dev_distance_t across_sockets()
{
    const ucs_cpu_model_t cpu = ucs_arch_get_cpu_model();
    const bool fast =
        (cpu == UCS_CPU_MODEL_AMD_ROME) || (cpu == UCS_CPU_MODEL_AMD_MILAN);
    return {.latency   = machine_latency,
            .bandwidth = fast ? machine_bandwidth_2 : machine_bandwidth};
}

bool is_card(ucs_sys_device_t device)
{
    return cards[device].load() != no_card;
}

/* Of a card as it was made known, of another device from the kernel. */
std::optional<unsigned> node_of(ucs_sys_device_t device)
{
    const unsigned known = cards[device].load();
    if (known != no_card) {
        return (known >= first_known) ? std::optional(known - first_known)
                                      : std::nullopt;
    }
    char name[UCS_SYS_BDF_NAME_MAX];
    int node = -1;
    std::ifstream file(
        std::string("/sys/bus/pci/devices/") +
        ucs_topo_sys_device_bdf_name(device, name, sizeof(name)) +
        "/numa_node");
    return ((file >> node) && (node >= 0))
               ? std::optional(static_cast<unsigned>(node))
               : std::nullopt;
}

ucs_status_t get_distance(ucs_sys_device_t first, ucs_sys_device_t second,
                          ucs_sys_dev_distance_t *distance) noexcept
{
    const ucs_status_t status = sysfs_get_distance(first, second, distance);
    if ((first == second) || (first == UCS_SYS_DEVICE_ID_UNKNOWN) ||
        (second == UCS_SYS_DEVICE_ID_UNKNOWN) ||
        !(is_card(first) || is_card(second))) {
        return status;
    }
    return guarded([&] {
        *distance = rate_distance(
            (status == UCS_OK) ? std::optional(*distance) : std::nullopt,
            node_of(first), node_of(second), across_sockets());
        return UCS_OK;
    });
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

ucs_sys_dev_distance_t
rate_distance(const std::optional<ucs_sys_dev_distance_t> &by_tree,
              std::optional<unsigned> first, std::optional<unsigned> second,
              const ucs_sys_dev_distance_t &far)
{
    const bool known = first.has_value() && second.has_value();
    if (!by_tree.has_value()) {
        /* Near if nothing is known, as UCX assumes of such devices. */
        return (known && (*first != *second)) ? far : ucs_topo_default_distance;
    }
    if (known && (*first == *second) && (by_tree->latency >= far.latency)) {
        return {.latency = bridge_latency, .bandwidth = bridge_bandwidth};
    }
    return *by_tree;
}

ucs_sys_device_t add_system_device(const std::string &bus_id,
                                   const std::string &name,
                                   std::optional<unsigned> node)
{
    ucs_sys_device_t device;
    if ((ucs_topo_find_device_by_bdf_name(bus_id.c_str(), &device) != UCS_OK) ||
        (device == UCS_SYS_DEVICE_ID_UNKNOWN)) {
        ucs_debug("%s: UCX has no system device for %s", name.c_str(),
                  bus_id.c_str());
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    ucs_topo_sys_device_set_name(device, name.c_str());
    cards[device] = node.has_value() ? first_known + *node : nodeless;
    return device;
}

} // namespace gaudi::base
