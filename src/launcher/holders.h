/**
 * Which processes have device nodes open, as far as this user can see.
 */
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace launcher {

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
holders find_holders(const std::string &proc);

/** What the compute node of a card can be called: new and old kernels. */
std::vector<std::string> node_paths(const std::string &dev, int node);

/** The node of a card of an emulated box. */
std::string emulated_node_path(const std::string &box, int node);

/** "pid 12 (program), ..." */
std::string describe(const std::vector<holder> &all);

} // namespace launcher
