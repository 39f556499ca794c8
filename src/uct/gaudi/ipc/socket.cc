/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/socket.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

struct socket_name {
    sockaddr_un address{};
    socklen_t length = 0;

    /* Abstract: the first byte of the path is 0. */
    explicit socket_name(uint64_t process)
    {
        address.sun_family = AF_UNIX;
        const int text     = std::snprintf(
                address.sun_path + 1, sizeof(address.sun_path) - 1,
                "ucx-gaudi/%016lx", static_cast<unsigned long>(process));
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                        static_cast<size_t>(text));
    }

    explicit socket_name(const std::string &path) : length(sizeof(address))
    {
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    }

    [[nodiscard]] const sockaddr *get() const
    {
        return reinterpret_cast<const sockaddr *>(&address);
    }
};

uid_t overflow_uid()
{
    static const uid_t known = [] {
        uid_t id = 65534;
        std::ifstream("/proc/sys/kernel/overflowuid") >> id;
        return id;
    }();
    return known;
}

/* Whose process is at the other end: SO_PEERCRED is as of connect or listen. */
bool is_of_own_user(int socket)
{
    ucred peer{};
    socklen_t length = sizeof(peer);
    return (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) &&
           (peer.uid == geteuid()) && (peer.uid != overflow_uid());
}

util::unique_fd make_socket()
{
    return util::unique_fd(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

util::unique_fd listen_at(const socket_name &name)
{
    util::unique_fd fd = make_socket();
    if (fd && ((bind(fd.get(), name.get(), name.length) != 0) ||
               (listen(fd.get(), SOMAXCONN) != 0))) {
        const int error = errno;
        fd.reset();
        errno = error;
    }
    return fd;
}

util::unique_fd connect_to(const socket_name &name, int &error_p)
{
    util::unique_fd fd = make_socket();
    error_p            = 0;
    if (!fd || (connect(fd.get(), name.get(), name.length) != 0)) {
        error_p = errno;
    } else if (!is_of_own_user(fd.get())) {
        error_p = EACCES;
    }
    return (error_p == 0) ? std::move(fd) : util::unique_fd();
}

void take_descriptor(msghdr &header, util::unique_fd &fd_p)
{
    const cmsghdr *part = CMSG_FIRSTHDR(&header);
    if ((part != nullptr) && (part->cmsg_level == SOL_SOCKET) &&
        (part->cmsg_type == SCM_RIGHTS) &&
        (part->cmsg_len >= CMSG_LEN(sizeof(int)))) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
        fd_p.reset(fd);
    }
}

} // namespace

util::unique_fd listen_at(uint64_t process)
{
    return listen_at(socket_name(process));
}

util::unique_fd listen_at_path(const std::string &path)
{
    return listen_at(socket_name(path));
}

util::unique_fd connect_to_name(uint64_t process, int &error_p)
{
    return connect_to(socket_name(process), error_p);
}

util::unique_fd connect_to_path(const std::string &path, int &error_p)
{
    util::unique_fd fd = connect_to(socket_name(path), error_p);
    if (error_p == ENOENT) {
        error_p = ECONNREFUSED; /* the file went with its process */
    }
    return fd;
}

util::unique_fd accept_from(int listening)
{
    util::unique_fd fd(
        accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd && !is_of_own_user(fd.get())) {
        fd.reset();
        errno = EACCES;
    }
    return fd;
}

int send_message(int socket, const void *data, size_t length, int with)
{
    iovec part{const_cast<void *>(data), length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr header{};
    header.msg_iov    = &part;
    header.msg_iovlen = 1;
    if (with >= 0) {
        header.msg_control    = control;
        header.msg_controllen = sizeof(control);
        cmsghdr *first        = CMSG_FIRSTHDR(&header);
        first->cmsg_level     = SOL_SOCKET;
        first->cmsg_type      = SCM_RIGHTS;
        first->cmsg_len       = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(first), &with, sizeof(with));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while ((sent < 0) && (errno == EINTR));
    return (sent < 0) ? -errno : 0;
}

ssize_t receive_message(int socket, void *data, size_t max,
                        util::unique_fd *fd_p)
{
    iovec part{data, max};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov    = &part;
    header.msg_iovlen = 1;
    if (fd_p != nullptr) { /* room for one */
        header.msg_control    = control;
        header.msg_controllen = CMSG_LEN(sizeof(int));
    }
    ssize_t length;
    do {
        length = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((length < 0) && (errno == EINTR));
    if (length < 0) {
        return -errno;
    }
    if (fd_p != nullptr) {
        take_descriptor(header, *fd_p);
    }
    return length;
}

std::string why_no_own_user()
{
    const uid_t own = geteuid();
    return (own != overflow_uid())
               ? ""
               : "user " + std::to_string(own) +
                     " stands for every user that a namespace does not map "
                     "(run as another user)";
}

} // namespace gaudi::ipc
