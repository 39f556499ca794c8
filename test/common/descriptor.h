/**
 * File descriptors sent from one process to another.
 */
#pragma once

namespace gaudi::test {

/** Send a copy of a descriptor over a socket. */
bool send_descriptor(int socket, int fd);

/** @return A new descriptor, owned by the caller; -1 when none came. */
int receive_descriptor(int socket);

} // namespace gaudi::test
