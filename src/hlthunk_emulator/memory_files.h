/**
 * Files in memory by which the processes of a box know of each other.
 */
#pragma once

#include "util/unique_fd.h"

#include <functional>
#include <string>

namespace gaudi::emu {

/**
 * Open the files of a name that processes have open: those of this user that
 * may be looked into.
 *
 * @param name    As memfd_create was given it.
 * @param access  O_RDONLY or O_RDWR.
 * @param visit   Called with each; returns whether to go on.
 */
void visit_memory_files(const std::string &name, int access,
                        const std::function<bool(util::unique_fd)> &visit);

} // namespace gaudi::emu
