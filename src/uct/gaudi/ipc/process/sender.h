/**
 * Whether a process may be told what others of its user may: what the kernel
 * says of the one that sent a message.
 *
 * Knows nothing of files. Any thread.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <sys/socket.h>

namespace gaudi::ipc {

/**
 * Whether credentials are of this process's user. Never, where this process has
 * the overflow id: in its user namespace all users have it that are not mapped
 * there.
 */
[[nodiscard]] bool is_own_user(const ucred &credentials);

/** Whether others of this user could find out what @ref check_namespaces does
 *  of this process. */
[[nodiscard]] bool can_be_looked_at();

/**
 * Whether a process of this user is in the user and PID namespace of this one.
 * A container may have the same user and see our sockets; the kernel lets it
 * have none of our files.
 *
 * @param pid    Of the process, in our PID namespace.
 * @param pidfd  Of it, from the kernel with the message; a negative one is
 *               opened here by the pid, which may be another process's by then.
 * @return UCS_ERR_REJECTED: it is not, has ended, or /proc does not show it
 *         to us; said at debug level. UCS_ERR_NO_RESOURCE: there was no room
 *         for a descriptor to find out.
 */
[[nodiscard]] ucs_status_t check_namespaces(pid_t pid, int pidfd);

} // namespace gaudi::ipc
