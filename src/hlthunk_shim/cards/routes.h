/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ways from one card to the memory of another, and whether the machine has
 * the one over PCIe. Opens no card, keeps nothing. Any thread.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gaudi::shim {

/** Over which wire bytes get from one card to another's memory. */
enum class wire {
    ports, /**< the cards' own links */
    pcie,  /**< a card's DMA engines on the other's BAR, by import */
    host   /**< host memory that both cards map: every pair has it */
};

/** As in UCX_GAUDI_IPC_ROUTES. */
const char *name_of(wire of);

/** The first wanted to the last one. */
inline constexpr char default_routes[] = "ports,pcie,host";

/**
 * Read UCX_GAUDI_IPC_ROUTES.
 *
 * @param text     Names of wires separated by commas, the first wanted first,
 *                 each at most once, at least one.
 * @param order_p  Filled on success only.
 * @return What is wrong, to follow the variable and its value; empty: nothing.
 */
std::string parse_routes(std::string_view text, std::vector<wire> &order_p);

/** UCX_GAUDI_IPC_P2P: whether cards reach each other over PCIe. */
enum class peer_to_peer {
    automatic, /**< where sysfs shows that they do */
    yes,       /**< the owner of the machine knows that they do */
    no
};

/** Whether the DMA engines of one card reach the BAR of another, which no
 *  answer of the driver tells. */
struct pcie_path {
    bool is_there = false;
    std::string why; /**< a short phrase, and what to set where it helps */
};

/**
 * Find out, as Linux does for peer-to-peer DMA (calc_map_type_and_dist in
 * drivers/pci/p2pdma.c), but for its list of root complexes that forward
 * between their ports: those are slow at it, and any that is taken for one by
 * mistake costs a reset of the card. Their owners can say yes.
 *
 * @param sys_root  Of the sysfs that shows both, as @ref driver::sysfs has it;
 *                  empty: none does.
 * @param bus_id    Of the card whose engines move the bytes, "dddd:bb:dd.f".
 * @param peer_bus_id  Of the card with the memory. The same one is a path.
 */
pcie_path find_pcie_path(const std::string &sys_root, const std::string &bus_id,
                         const std::string &peer_bus_id, peer_to_peer wish);

/** How the IOMMU treats what a card reads and writes: "identity" where it
 *  translates nothing, "DMA", "DMA-FQ" where it does (iommu_group_show_type in
 *  drivers/iommu/iommu.c); empty: there is none, or sysfs does not tell. */
std::string iommu_type(const std::string &sys_root, const std::string &bus_id);

/** Whether that is a type of those that translate. */
bool is_translating(const std::string &iommu_type);

} // namespace gaudi::shim
