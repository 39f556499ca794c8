/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The routes between cards of different processes, by name, and how the IOMMU
 * treats a card. Opens no card, keeps nothing. Any thread.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gaudi::shim {

/** What bytes go over from one card to another's memory. */
enum class wire {
    ports, /**< the cards' own links */
    host   /**< host memory that both cards map: every pair has it */
};

/** As in UCX_GAUDI_IPC_ROUTES. */
const char *name_of(wire of);

/** The first wanted to the last one. */
inline constexpr char default_routes[] = "ports,host";

/**
 * Read UCX_GAUDI_IPC_ROUTES.
 *
 * @param text     Names of wires separated by commas, the first wanted first,
 *                 each at most once, at least one.
 * @param order_p  Filled on success only.
 * @return What is wrong, to follow the variable and its value; empty: nothing.
 */
std::string parse_routes(std::string_view text, std::vector<wire> &order_p);

/** How the IOMMU treats what a card reads and writes: "identity" where it
 *  translates nothing, "DMA", "DMA-FQ" where it does (iommu_group_show_type in
 *  drivers/iommu/iommu.c); empty: there is none, or sysfs does not tell. */
std::string iommu_type(const std::string &sys_root, const std::string &bus_id);

/** Whether that is a type of those that translate. */
bool is_translating(const std::string &iommu_type);

} // namespace gaudi::shim
