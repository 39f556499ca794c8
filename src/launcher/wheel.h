/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The UCX inside an installed Python wheel: a folder with its libraries, as
 * nixl_cu12.libs, and below that one with its modules, `ucx`.
 *
 * The loader is copied there as a module of that UCX, and beside it, in the
 * folder `ucx-gaudi`, the module for its release. Before UCX 1.22 the loader
 * has the name of another module, which is kept with `.displaced` behind it and
 * opened by the loader.
 */
#pragma once

#include "launcher/installation.h"

#include <filesystem>
#include <string>

namespace launcher {

/** What became of it: lines for the user, or what stands in the way. */
struct wheel_result {
    std::string text;
    problems found;
};

/** Put the transports into every UCX below a folder. Either all can have them,
 *  or nothing is changed. */
wheel_result put_into_wheels(const installation &files,
                             const std::filesystem::path &folder);

/** Take them out, and have everything as it was. */
wheel_result take_out_of_wheels(const std::filesystem::path &folder);

} // namespace launcher
