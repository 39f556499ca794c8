/**
 * Which processes have device nodes open, as far as this user can see.
 *
 * Reads /proc and asks the driver for its own count; takes no card. Any thread.
 */
#pragma once

#include "hlthunk_shim/hlthunk/library.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

struct holder {
    pid_t pid;
    uid_t user;
    std::string program; /**< as the process calls itself */
};

/** By the path of the node as /proc/PID/fd shows it; ordered by process id. */
using holders = std::map<std::string, std::vector<holder>>;

/**
 * Look at the open files of all other processes.
 *
 * @param proc  Where proc is mounted. Processes that do not let us look, or end
 *              meanwhile, are left out.
 */
holders find_holders(const std::string &proc = "/proc");

/** Those of one card.
 *  @param node  N of /dev/accel/accelN. */
std::vector<holder> holders_of(const holders &all, const library &lib,
                               int node);

/** What the compute node of a card can be called: new and old kernels. */
std::vector<std::string> node_paths(const std::string &dev, int node);

/** The node of a card of an emulated box. */
std::string emulated_node_path(const std::string &box, int node);

/**
 * Whether somebody has the compute node open, or a dma-buf of the card.
 *
 * @param fd  Control node of the card.
 * @return None when the library is too old to tell.
 */
std::optional<bool> is_taken(const library &lib, int fd);

/** "pid 12 (program), ...", to follow "by" also when nobody is seen; fit for a
 *  line. */
std::string describe(const std::vector<holder> &all);

} // namespace gaudi::shim
