/**
 * The environment in which a program finds the transports.
 */
#pragma once

#include "launcher/installation.h"

#include <string>
#include <utility>
#include <vector>

namespace launcher {

/** Names and values. */
using variables = std::vector<std::pair<std::string, std::string>>;

/**
 * The variables that meet a request, with their final values.
 *
 * They hold what the environment has now, too; made once more in the
 * environment that has them, they are the same.
 *
 * @param ucx  What find_ucx has found; preloading does without.
 */
variables make_variables(const installation &files, const request &wanted,
                         const found_ucx &ucx);

/** The variables of a request that choose the software Gaudi alone. */
variables make_emulator_variables(const request &wanted);

/** Set them in this process. */
void set_variables(const variables &values);

/** Lines for a POSIX shell that set and export them. */
std::string to_exports(const variables &values);

} // namespace launcher
