/**
 * What the files are called that stand for cards.
 *
 * Old kernels and new ones call them differently; a driver library whose cards
 * the kernel does not know has a folder of its own, see driver::own_dev. Any
 * thread.
 */
#pragma once

#include <string>
#include <vector>

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

} // namespace gaudi::shim
