/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/datagram.h"

#include "util/errors.h"
#include "util/other_process.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

/* Newer than the headers of Debian 12. */
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

namespace gaudi::ipc {

namespace {

/* @return Whether the kernel says who sends what comes. */
bool ask_for_senders(int socket)
{
    constexpr int on = 1;
    return setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0;
}

/* What the kernel says of users that are not mapped in our namespace. */
uid_t overflow_uid()
{
    static const uid_t known = [] {
        uid_t id = 65534;
        std::ifstream("/proc/sys/kernel/overflowuid") >> id;
        return id;
    }();
    return known;
}

/* What everybody may read of a process; empty: it hides, or is gone. Not by a
 * stream, which throws when the process ends between opening and reading. */
std::string text_of(const std::string &process, const char *file)
{
    const std::string path = "/proc/" + process + file;
    const util::unique_fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text;
    char part[4096];
    ssize_t length = 0;
    while (fd && (length = read(fd.get(), part, sizeof(part))) > 0) {
        text.append(part, static_cast<size_t>(length));
    }
    return text;
}

/* /proc lists a process's pids from our namespace down to its own. */
bool is_in_pid_namespace(const std::string &process)
{
    return text_of(process, "/status").find("\nNSpid:\t" + process + "\n") !=
           std::string::npos;
}

/* The link in /proc/PID/ns is exact, but needs rights over the process. Without
 * them the map has to do, which reads differently from outside the namespace
 * (uid_m_show of kernel/user_namespace.c), unless it maps all ids to
 * themselves as ours does. */
bool is_in_user_namespace(const std::string &process)
{
    const auto link_of = [](const std::string &whose) {
        std::error_code error;
        return std::filesystem::read_symlink("/proc/" + whose + "/ns/user",
                                             error);
    };
    const std::filesystem::path link = link_of(process);
    if (!link.empty()) {
        return link == link_of("self");
    }
    const std::string map = text_of(process, "/uid_map");
    return !map.empty() && (map == text_of("self", "/uid_map"));
}

} // namespace

datagram::datagram(void *data, size_t length) : data_{data, length}
{
    header_.msg_iov    = &data_;
    header_.msg_iovlen = 1;
}

void datagram::add_credentials()
{
    const ucred own{getpid(), geteuid(), getegid()};
    add(SCM_CREDENTIALS, &own, sizeof(own));
}

bool datagram::send(int socket)
{
    return sendmsg(socket, &header_, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

ssize_t datagram::receive(int socket)
{
    header_.msg_control    = control_;
    header_.msg_controllen = sizeof(control_);
    ssize_t length;
    do {
        length = recvmsg(socket, &header_, MSG_TRUNC | MSG_CMSG_CLOEXEC);
    } while ((length < 0) && (errno == EINTR));
    if (length >= 0) {
        parse();
    }
    return length;
}

void datagram::add(int type, const void *what, size_t length)
{
    auto *part = reinterpret_cast<cmsghdr *>(control_ + header_.msg_controllen);
    header_.msg_control = control_;
    header_.msg_controllen += CMSG_SPACE(length);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type  = type;
    part->cmsg_len   = CMSG_LEN(length);
    std::memcpy(CMSG_DATA(part), what, length);
}

void datagram::parse()
{
    for (cmsghdr *part = CMSG_FIRSTHDR(&header_); part != nullptr;
         part          = CMSG_NXTHDR(&header_, part)) {
        if (part->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if ((part->cmsg_type == SCM_CREDENTIALS) &&
            (part->cmsg_len == CMSG_LEN(sizeof(ucred)))) {
            std::memcpy(&credentials, CMSG_DATA(part), sizeof(ucred));
        } else if ((part->cmsg_type == SCM_PIDFD) &&
                   (part->cmsg_len == CMSG_LEN(sizeof(int)))) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
            pidfd.reset(fd);
        } else if (part->cmsg_type == SCM_RIGHTS) {
            take_descriptors(*part);
        }
    }
}

/* There may be more than belong there. */
void datagram::take_descriptors(cmsghdr &part)
{
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part.cmsg_len;
         at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(&part) + at, sizeof(fd));
        util::unique_fd taken(fd);
        const auto place = std::find_if(descriptors.begin(), descriptors.end(),
                                        [](const auto &one) { return !one; });
        if (place != descriptors.end()) {
            *place = std::move(taken);
        }
    }
}

service_name::service_name(uint64_t nonce)
{
    /* Abstract: it begins with a zero. */
    const int text = std::snprintf(
        address.sun_path + 1, sizeof(address.sun_path) - 1,
        "ucx-gaudi-ipc/%016lx", static_cast<unsigned long>(nonce));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    static_cast<size_t>(text));
}

service_name::service_name(const std::string &path) : length(sizeof(address))
{
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
}

util::unique_fd open_service(const service_name &name, bool *sends_pidfds_p)
{
    constexpr int on = 1;
    util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd &&
        (!ask_for_senders(fd.get()) ||
         (bind(fd.get(), reinterpret_cast<const sockaddr *>(&name.address),
               name.length) != 0))) {
        const int error = errno;
        fd.reset();
        errno = error;
    }
    if (sends_pidfds_p != nullptr) {
        *sends_pidfds_p = fd && (setsockopt(fd.get(), SOL_SOCKET, SO_PASSPIDFD,
                                            &on, sizeof(on)) == 0);
    }
    return fd;
}

util::unique_fd open_client()
{
    return util::unique_fd(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

util::unique_fd open_answers(util::unique_fd &others_p)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) != 0) {
        return {};
    }
    util::unique_fd own(ends[0]);
    others_p.reset(ends[1]);
    return ask_for_senders(own.get()) ? std::move(own) : util::unique_fd();
}

bool connect_to_service(int client, const service_name &name)
{
    return connect(client, reinterpret_cast<const sockaddr *>(&name.address),
                   name.length) == 0;
}

bool is_own_user(const ucred &credentials)
{
    const uid_t own = geteuid();
    return (credentials.uid == own) && (own != overflow_uid());
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

ucs_status_t check_namespaces(pid_t pid, int pidfd)
{
    if (pid <= 0) {
        ucs_debug("gaudi_ipc: a process of another PID namespace asks");
        return UCS_ERR_REJECTED;
    }
    util::unique_fd opened;
    if (pidfd < 0) {
        opened = util::open_pidfd(static_cast<uint32_t>(pid));
        if (!opened) {
            return util::may_pass(errno) ? UCS_ERR_NO_RESOURCE
                                         : UCS_ERR_REJECTED;
        }
        pidfd = opened.get();
    }
    /* What was looked at is of the process only if that lived to the end. */
    const std::string process = std::to_string(pid);
    errno                     = 0;
    if (!is_in_pid_namespace(process) || !is_in_user_namespace(process) ||
        util::has_ended(pidfd)) {
        ucs_debug("gaudi_ipc: process %d is in another PID or user namespace, "
                  "hides, or has ended",
                  pid);
        return util::may_pass(errno) ? UCS_ERR_NO_RESOURCE : UCS_ERR_REJECTED;
    }
    return UCS_OK;
}

} // namespace gaudi::ipc
