/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/topology.h"

#include "uct/gaudi/base/ucx/status.h"

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>

#include <unistd.h>

extern "C" {
#include <ucs/arch/cpu.h>

/* What there is of these depends on the release: before 1.15 the first, before
 * 1.22 the second, from then on the third. Headers of the first one declare it,
 * too, but not weak.
 * NOLINTNEXTLINE(readability-redundant-declaration) */
extern ucs_list_link_t ucs_sys_topo_methods_list __attribute__((weak));
extern ucs_list_link_t ucs_sys_topo_providers_list __attribute__((weak));
extern ucs_status_t ucs_topo_sys_device_set_numa_node(ucs_sys_device_t device,
                                                      int16_t node)
    __attribute__((weak));
#if UCT_API >= UCT_VERSION(1, 23) /* commits before it may lack it */
ucs_status_t ucs_topo_sys_device_set_class(ucs_sys_device_t device,
                                           ucs_topo_device_class_t kind)
    __attribute__((weak));
#endif
}

namespace gaudi::base {

namespace {

/* What is in UCX's lists. The second one's type is private to UCX. */
struct topology_method {
    const char *name;
    ucs_topo_get_distance_func_t get_distance;
    ucs_list_link_t list;
};

struct topology_provider {
    const char *name;
    ucs_topo_get_distance_func_t get_distance;
    void (*get_memory_distance)(ucs_sys_device_t, ucs_sys_dev_distance_t *);
    ucs_list_link_t list;
};

/* The one of UCX that goes by the tree of PCI devices. */
constexpr char by_tree[] = "sysfs";

ucs_topo_get_distance_func_t sysfs_get_distance = nullptr;

/* What is known of a system device: not a card of ours, a card whose NUMA node
 * is unknown, or two more than the node of a card. Indexed by system device. */
constexpr unsigned no_card     = 0;
constexpr unsigned nodeless    = 1;
constexpr unsigned first_known = 2;
std::array<std::atomic<unsigned>, size_t{1} << (8 * sizeof(ucs_sys_device_t))>
    cards;

/* What UCX says of two devices below one host bridge that are farthest from
 * each other. */
constexpr ucs_sys_dev_distance_t below_one_bridge = {
    .latency = 300e-9, .bandwidth = 3500.0 * UCS_MBYTE};

/* UCX's figures for devices on two sockets. */
constexpr double machine_latency     = 500e-9;
constexpr double machine_bandwidth   = 220.0 * UCS_MBYTE;
constexpr double machine_bandwidth_2 = 5100.0 * UCS_MBYTE; /* AMD Rome, Milan */

/* Above that of UCX's own names for accelerators, and not above that of NICs,
 * with which a card has no bus id in common. */
constexpr unsigned name_priority = 20;

std::string sysfs_path(ucs_sys_device_t device)
{
    char name[UCS_SYS_BDF_NAME_MAX];
    return std::string("/sys/bus/pci/devices/") +
           ucs_topo_sys_device_bdf_name(device, name, sizeof(name));
}

/* From 1.16 on the status does not tell: of devices that are not in sysfs UCX
 * says that they are near each other. */
bool is_in_sysfs(ucs_sys_device_t device)
{
    return access(sysfs_path(device).c_str(), F_OK) == 0;
}

/* Of a card as it was made known, of another device from the kernel. */
std::optional<unsigned> node_of(ucs_sys_device_t device)
{
    const unsigned known = cards[device].load();
    if (known != no_card) {
        return (known >= first_known) ? std::optional(known - first_known)
                                      : std::nullopt;
    }
    int node = -1;
    std::ifstream file(sysfs_path(device) + "/numa_node");
    return ((file >> node) && (node >= 0))
               ? std::optional(static_cast<unsigned>(node))
               : std::nullopt;
}

/* Of devices on two sockets, whose only common parent is the machine. */
ucs_sys_dev_distance_t across_sockets()
{
    const ucs_cpu_model_t cpu = ucs_arch_get_cpu_model();
    const bool fast =
        (cpu == UCS_CPU_MODEL_AMD_ROME) || (cpu == UCS_CPU_MODEL_AMD_MILAN);
    return {.latency   = machine_latency,
            .bandwidth = fast ? machine_bandwidth_2 : machine_bandwidth};
}

ucs_status_t get_distance(ucs_sys_device_t first, ucs_sys_device_t second,
                          ucs_sys_dev_distance_t *distance) noexcept
{
    const ucs_status_t status = sysfs_get_distance(first, second, distance);
    if ((first == second) || (first == UCS_SYS_DEVICE_ID_UNKNOWN) ||
        (second == UCS_SYS_DEVICE_ID_UNKNOWN) ||
        ((cards[first] == no_card) && (cards[second] == no_card))) {
        return status;
    }
    return guarded([&] {
        const bool is_known =
            (status == UCS_OK) && is_in_sysfs(first) && is_in_sysfs(second);
        *distance =
            rate_distance(is_known ? std::optional(*distance) : std::nullopt,
                          node_of(first), node_of(second), across_sockets());
        return UCS_OK;
    });
}

/* In place, since UCX keeps the entry that it has chosen. */
template <typename Entry>
void ask_us_first(ucs_list_link_t &entries)
{
    Entry *each;
    ucs_list_for_each(each, &entries, list)
    {
        if (std::strcmp(each->name, by_tree) == 0) {
            sysfs_get_distance = each->get_distance;
            each->get_distance = get_distance;
            return;
        }
    }
}

/* Names have a priority from 1.14 on. */
template <typename Result, typename... Priority>
void set_name(Result (*set)(ucs_sys_device_t, const char *, Priority...),
              ucs_sys_device_t device, const std::string &name)
{
    (void)set(device, name.c_str(), Priority{name_priority}...);
}

} // namespace

void init_topology()
{
    if (&ucs_sys_topo_methods_list != nullptr) {
        ask_us_first<topology_method>(ucs_sys_topo_methods_list);
    } else if (&ucs_sys_topo_providers_list != nullptr) {
        ask_us_first<topology_provider>(ucs_sys_topo_providers_list);
    }
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
    set_name(ucs_topo_sys_device_set_name, device, name);
    if (node.has_value() && (ucs_topo_sys_device_set_numa_node != nullptr)) {
        (void)ucs_topo_sys_device_set_numa_node(device,
                                                static_cast<int16_t>(*node));
    }
#if UCT_API >= UCT_VERSION(1, 23)
    /* UCX pairs NICs with these. */
    if (ucs_topo_sys_device_set_class != nullptr) {
        (void)ucs_topo_sys_device_set_class(device, UCS_TOPO_DEVICE_CLASS_ACC);
    }
#endif
    cards[device] = node.has_value() ? first_known + *node : nodeless;
    return device;
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
        return below_one_bridge;
    }
    return *by_tree;
}

} // namespace gaudi::base
