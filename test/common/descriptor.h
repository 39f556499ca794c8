/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * File descriptors that processes have together.
 */
#pragma once

#include <string>

namespace gaudi::test {

/** Send a copy of a descriptor over a socket. */
bool send_descriptor(int socket, int fd);

/** @return A new descriptor, owned by the caller; -1 when none came. */
int receive_descriptor(int socket);

/** A file without a name for what processes and threads print. Each write goes
 * to the end: a memfd without O_APPEND lets writes of the same time overwrite
 * each other. @return Owned by the caller. @throws std::runtime_error */
int make_output_file();

/** All that is in it by now. */
std::string read_output_file(int fd);

} // namespace gaudi::test
