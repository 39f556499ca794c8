/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the files of compute nodes are called, and which of them this process
 * and others have open, as far as this user can see.
 *
 * Old kernels and new ones call them differently; a driver library whose cards
 * the kernel does not know has a folder of its own, see driver::own_dev. Takes
 * no card. Any thread.
 */
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

/** What the compute node of a card can be called.
 *  @param dev     Where device files are.
 *  @param number  N of /dev/accel/accelN. */
std::vector<std::string> compute_files(const std::string &dev, unsigned number);

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

struct holder {
    pid_t pid;
    uid_t user;
    std::string program; /**< as the process calls itself */
};

/** By the name of the compute node as /proc/PID/fd shows it; ordered by process
 *  id. */
using holders = std::map<std::string, std::vector<holder>>;

/**
 * Look at the open files of all other processes.
 *
 * @param own_dev  As driver::own_dev.
 * @param proc     Where proc is mounted. Processes that do not let us look, or
 *                 end meanwhile, are left out.
 */
holders find_holders(const std::string &own_dev,
                     const std::string &proc = "/proc");

/** Those of one card.
 *  @param number  N of /dev/accel/accelN. */
std::vector<holder> holders_of(const holders &all, const std::string &own_dev,
                               unsigned number);

/** "pid 12 (program), ...", to follow "by" also when nobody is seen; fit for a
 *  line. */
std::string describe(const std::vector<holder> &all);

} // namespace gaudi::shim
