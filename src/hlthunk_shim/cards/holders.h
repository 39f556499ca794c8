/**
 * Which processes have cards open, as far as this user can see.
 *
 * Reads /proc and asks the driver for its own count; takes no card. Any thread.
 */
#pragma once

#include "hlthunk_shim/driver.h"

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
std::vector<holder> holders_of(const holders &all, const driver &of,
                               unsigned number);

/**
 * Whether somebody has the compute node open, or a dma-buf of the card.
 *
 * @param fd  Of the control node of the card.
 * @return None when the library is too old to tell.
 */
std::optional<bool> is_taken(const driver &of, int fd);

/** "pid 12 (program), ...", to follow "by" also when nobody is seen; fit for a
 *  line. */
std::string describe(const std::vector<holder> &all);

} // namespace gaudi::shim
