/**
 * Compute nodes of cards that the process has open, whoever opened them.
 */
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

/** The file behind a file descriptor. A card's node is open once at a time, so
 *  equal ones stand for the same open card, as long as it stays open. */
struct node_identity {
    dev_t file_system = 0;
    ino_t inode       = 0;
    dev_t device      = 0;

    bool operator==(const node_identity &) const = default;
    bool operator<(const node_identity &other) const
    {
        return std::tie(file_system, inode, device) <
               std::tie(other.file_system, other.inode, other.device);
    }
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

} // namespace gaudi::shim
