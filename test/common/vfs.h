/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * UCX's virtual file system, as its daemon reads it.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gaudi::test {

/** The number in a file; none without such a file. What is in the folder of an
 *  interface shows when somebody has looked there: see look_into. */
std::optional<uint64_t> vfs_number(const std::string &path);

/** Have UCX fill a folder. @return Whether it is one. */
bool look_into(const std::string &path);

/** The folder of an object that is known under its address. */
std::string vfs_name(const void *object);

} // namespace gaudi::test
