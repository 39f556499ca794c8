/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One message over a socket, with the descriptors that come along and
 * what the kernel says of its sender; and whether that one may be told what
 * others of its user may.
 *
 * Knows nothing of what is said. One thread at a time.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/unique_fd.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>

namespace gaudi::ipc {

/** What is handed out, or brought, together. */
using file_pair = std::array<util::unique_fd, 2>;

/** The name of a service's socket. */
struct service_name {
    /** By the nonce of its process: for those of its network namespace. */
    explicit service_name(uint64_t nonce);
    /** In a folder. @param path  Not too long. */
    explicit service_name(const std::string &path);

    sockaddr_un address{AF_UNIX, {}};
    socklen_t length;
};

class datagram {
public:
    /** @param data  Read by @ref send, written by @ref receive. */
    datagram(void *data, size_t length);

    /** Say who sends it. The kernel checks that. */
    void add_credentials();

    /** @param fd  Borrowed until it is sent; three at most. */
    void add_descriptor(int fd) { add(SCM_RIGHTS, &fd, sizeof(fd)); }

    /** Waits for nothing. @return false, with errno. */
    [[nodiscard]] bool send(int socket);

    /** @return Bytes that came, all of them if more than fit; negative: errno
     *  tells. */
    [[nodiscard]] ssize_t receive(int socket);

    /* What was received. */

    /** Who sent it, in our namespaces: 0 stands for a process that is in none
     *  of ours, the overflow id for a user that is not. */
    ucred credentials{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    /** Of the process that sent it: since Linux 6.5, where the socket asks for
     *  it. -errno: it could not be had, because the process has ended or there
     *  was no room for a descriptor. */
    util::unique_fd pidfd{-ENODATA};
    std::array<util::unique_fd, 3> descriptors;

private:
    void add(int type, const void *what, size_t length);
    void parse();
    void take_descriptors(cmsghdr &part);

    iovec data_;
    msghdr header_{};
    alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(ucred)) +
                                   4 * CMSG_SPACE(sizeof(int))]{};
};

/** A socket that others find.
 *  @param sends_pidfds_p  Whether a pidfd comes with every message; nullptr:
 *                         none is to.
 *  @return Invalid: errno tells. */
[[nodiscard]] util::unique_fd open_service(const service_name &name,
                                           bool *sends_pidfds_p);

/** A socket to ask services with; never waits. @return As above. */
[[nodiscard]] util::unique_fd open_client();

/** Two ends of what an answer comes by, wherever who answers is; never waits.
 *  @return The own end, which ends when nobody has the other one any more: that
 *          goes with the question. Invalid: errno tells. */
[[nodiscard]] util::unique_fd open_answers(util::unique_fd &others_p);

/** Connect a client to a service. @return false, with errno. */
[[nodiscard]] bool connect_to_service(int client, const service_name &name);

/** Whether credentials are of this process's user. Never, where this process
 *  has the overflow id: all users have it that are not mapped in its user
 *  namespace. */
[[nodiscard]] bool is_own_user(const ucred &credentials);

/** That this process has the overflow id, for people; else empty. */
[[nodiscard]] std::string why_no_own_user();

/** Whether a process of this user is in the user and PID namespace of this one:
 *  a container may have the same user and see our sockets. Looks at what /proc
 *  shows to everybody, so it takes no rights over that process.
 *  @param pid    Of the process, in our PID namespace.
 *  @param pidfd  Of it, from the kernel with the message; a negative one is
 *                opened here by the pid, which may be another process's by
 *                then.
 *  @return UCS_ERR_REJECTED: it is not, has ended, or /proc does not show it to
 *          us; said at debug level. UCS_ERR_NO_RESOURCE: there was no room for
 *          a descriptor to find out. */
[[nodiscard]] ucs_status_t check_namespaces(pid_t pid, int pidfd);

} // namespace gaudi::ipc
