/* SPDX-License-Identifier: BSD-3-Clause */
/** Who has the compute nodes of cards open, as far as this user can see. */
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gaudi::shim {

/** What the compute node of a card can be called.
 *  @param dev     Where device files are.
 *  @param number  N of /dev/accel/accelN. */
std::vector<std::string> compute_files(const std::string &dev, unsigned number);

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
 * @param own_dev  As gaudi::shim::driver::own_dev.
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
