/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which files of compute nodes a process has open.
 *
 * Old kernels and new ones call them differently; a driver library whose cards
 * the kernel does not know has a folder of its own, see driver::own_dev. Takes
 * no card. Any thread.
 */
#pragma once

#include <compare>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

/** The file behind a file descriptor. A card's node is open once at a time, so
 *  equal ones stand for the same open card, as long as it stays open. */
struct node_identity {
    dev_t file_system = 0;
    ino_t inode       = 0;
    dev_t device      = 0;

    /* The check takes what the compiler makes for a literal.
     * NOLINTNEXTLINE(modernize-use-nullptr) */
    auto operator<=>(const node_identity &) const = default;
};

/** @return Whether the descriptor is open; errno stays as it is. */
[[nodiscard]] bool identify(int fd, node_identity &node_p);

/** Whether a descriptor stands for this file now. */
[[nodiscard]] bool is_node(int fd, const node_identity &node);

struct open_node {
    int fd;
    node_identity node;
};

/**
 * Find descriptors that look like compute nodes, by the names of their files.
 * Of several for one file, the lowest.
 *
 * @param own_dev  As driver::own_dev.
 */
[[nodiscard]] std::vector<open_node>
find_open_nodes(const std::string &own_dev);

/** Visit the descriptors of a process that look like compute nodes.
 *  @param process  Its folder in proc.
 *  @param own_dev  As driver::own_dev.
 *  @param visit    Called with the number of each, and the name of its file. */
void visit_open_nodes(
    const std::string &process, const std::string &own_dev,
    const std::function<void(int fd, const std::string &file)> &visit);

/** Behind the name of a file that no folder has, in proc. */
inline constexpr std::string_view deleted_file = " (deleted)";

} // namespace gaudi::shim
