/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * SOCK_SEQPACKET sockets between processes of one user. No call waits.
 *
 * A process listens at an abstract name made of its random identity, and at a
 * path in the folder that it shares with other namespaces (folder.h).
 */
#pragma once

#include "util/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace gaudi::ipc {

/** @return Invalid, with errno. */
[[nodiscard]] util::unique_fd listen_at(uint64_t process);
[[nodiscard]] util::unique_fd listen_at_path(const std::string &path);

/** Connect to a process by its name.
 *  @param error_p  Set if invalid: ECONNREFUSED where nobody listens, EACCES to
 *                  another user, EAGAIN where too many wait to be accepted. */
[[nodiscard]] util::unique_fd connect_to_name(uint64_t process, int &error_p);
[[nodiscard]] util::unique_fd connect_to_path(const std::string &path,
                                              int &error_p);

/** @return Invalid, with errno, when nobody waits, or one that did is another
 *          user's (EACCES). */
[[nodiscard]] util::unique_fd accept_from(int listening);

/** @param with  A descriptor to send along; -1: none.
 *  @return 0 or -errno: -EAGAIN when the peer does not read. */
[[nodiscard]] int send_message(int socket, const void *data, size_t length,
                               int with = -1);

/** @param fd_p  Filled with the descriptor that came along, if one did;
 *               nullptr: the kernel drops any. Closing one of the peer's may
 *               wait for it.
 *  @return Bytes of the message, cut to max; 0: the peer has closed its end;
 *          -errno: -EAGAIN without a message. */
[[nodiscard]] ssize_t receive_message(int socket, void *data, size_t max,
                                      util::unique_fd *fd_p = nullptr);

/** Why no process can be found to be of this one's user, for people; empty: one
 *  can. All users that a user namespace does not map have the overflow id. */
[[nodiscard]] std::string why_no_own_user();

} // namespace gaudi::ipc
