/**
 * One message over an abstract socket, with what the kernel says of its sender
 * and the descriptor that comes along.
 *
 * Knows nothing of what is said. One thread at a time.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>
#include <sys/un.h>

namespace gaudi::ipc {

/** A message of known size. */
class datagram {
public:
    /** @param data  Stays the caller's; read by @ref send, written by
     *               @ref receive. */
    datagram(void *data, size_t length);
    datagram(const datagram &)            = delete;
    datagram &operator=(const datagram &) = delete;

    /** Say who sends it. The kernel checks that. */
    void add_credentials();

    /** @param fd  Borrowed, until it is sent. */
    void add_descriptor(int fd);

    void set_peer(const sockaddr_un &name, socklen_t length);

    /** Send it, waiting for nothing. @return false: errno tells. */
    [[nodiscard]] bool send(int socket);

    /** @return Bytes that came, all of them if more than fit; negative: errno
     *  tells. */
    [[nodiscard]] ssize_t receive(int socket);

    /* Of what was received. */

    /** Who sent it, in our namespaces: 0 stands for a process that is in none
     *  of ours, the overflow id for a user that is not. */
    [[nodiscard]] const ucred &credentials() const { return credentials_; }

    /** Of the process that sent it: since Linux 6.5, where the socket asks for
     *  it. -errno: it could not be had, because the process has ended or there
     *  was no room for a descriptor. */
    [[nodiscard]] int pidfd() const { return pidfd_; }

    [[nodiscard]] util::unique_fd take_descriptor()
    {
        return std::move(descriptor_);
    }

    [[nodiscard]] const sockaddr_un &peer() const { return peer_; }
    [[nodiscard]] socklen_t peer_length() const { return header_.msg_namelen; }

    ~datagram();

private:
    void add(int type, const void *what, size_t length);
    void parse();
    void take_descriptors(cmsghdr &part);

    iovec data_;
    msghdr header_{};
    alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(ucred)) +
                                   2 * CMSG_SPACE(sizeof(int))]{};
    sockaddr_un peer_{};
    ucred credentials_{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    int pidfd_;
    util::unique_fd descriptor_;
};

/** The abstract name of a process's file service. */
socklen_t service_name(uint64_t nonce, sockaddr_un &name_p);

/** A socket that others find under a name, and that is told which process sends
 *  to it, as far as the kernel can.
 *
 * @param sends_pidfds_p  Whether a pidfd comes with every message.
 * @return Invalid: errno tells. */
[[nodiscard]] util::unique_fd
open_service(const sockaddr_un &name, socklen_t length, bool &sends_pidfds_p);

/** A socket with a name that the kernel chooses, so that answers find it; never
 *  waits. @return As above. */
[[nodiscard]] util::unique_fd open_client();

} // namespace gaudi::ipc
