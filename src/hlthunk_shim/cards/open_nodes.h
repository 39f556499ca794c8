/**
 * What the files of compute nodes are called, and which of them the process has
 * open, whoever opened them.
 *
 * Old kernels and new ones call them differently; a driver library whose cards
 * the kernel does not know has a folder of its own, see driver::own_dev. Any
 * thread.
 */
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

/** What the compute node of a card can be called.
 *  @param dev     Where device files are.
 *  @param number  N of /dev/accel/accelN. */
std::vector<std::string> compute_files(const std::string &dev, unsigned number);

/** The same as /proc/PID/fd shows it.
 *  @param own_dev  As driver::own_dev. */
std::vector<std::string> open_compute_files(const std::string &own_dev,
                                            unsigned number);

/** Whether a name in /proc/PID/fd looks like a compute node's: those of other
 *  accelerators do, too. */
bool is_compute_file(const std::string &name, const std::string &own_dev);

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
