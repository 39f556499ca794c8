#include "uct/gaudi/base/cards/topology.h"

#include "uct/gaudi/base/ucx/system_devices.h"

#include <array>
#include <atomic>
#include <fstream>

namespace gaudi::base {

namespace {

/* What is known of a system device: not a card of ours, a card whose NUMA node
 * is unknown, or two more than the node of a card. Indexed by system device. */
constexpr unsigned no_card     = 0;
constexpr unsigned nodeless    = 1;
constexpr unsigned first_known = 2;
std::array<std::atomic<unsigned>, system_devices> cards;

/* Of a card as it was made known, of another device from the kernel. */
std::optional<unsigned> node_of(ucs_sys_device_t device)
{
    const unsigned known = cards[device].load();
    if (known != no_card) {
        return (known >= first_known) ? std::optional(known - first_known)
                                      : std::nullopt;
    }
    int node = -1;
    std::ifstream file("/sys/bus/pci/devices/" + bus_id_of(device) +
                       "/numa_node");
    return ((file >> node) && (node >= 0))
               ? std::optional(static_cast<unsigned>(node))
               : std::nullopt;
}

std::optional<ucs_sys_dev_distance_t>
distance(ucs_sys_device_t first, ucs_sys_device_t second,
         const std::optional<ucs_sys_dev_distance_t> &by_tree)
{
    if ((cards[first] == no_card) && (cards[second] == no_card)) {
        return std::nullopt;
    }
    return rate_distance(by_tree, node_of(first), node_of(second),
                         across_sockets());
}

} // namespace

void init_distances()
{
    init_topology(distance);
}

ucs_sys_device_t place_card(const std::string &bus_id, const std::string &name,
                            std::optional<unsigned> node)
{
    const ucs_sys_device_t device = add_system_device(bus_id, name, node);
    if (device != UCS_SYS_DEVICE_ID_UNKNOWN) {
        cards[device] = node.has_value() ? first_known + *node : nodeless;
    }
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
