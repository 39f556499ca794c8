/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/descriptor.h"

#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* One byte, with one descriptor attached. */
struct descriptor_message {
    descriptor_message()
    {
        header.msg_iov        = &part;
        header.msg_iovlen     = 1;
        header.msg_control    = control;
        header.msg_controllen = sizeof(control);
    }

    char letter                                            = 'd';
    iovec part                                             = {&letter, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header                                          = {};
};

} // namespace

bool send_descriptor(int socket, int fd)
{
    descriptor_message message;
    cmsghdr *rights    = CMSG_FIRSTHDR(&message.header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type  = SCM_RIGHTS;
    rights->cmsg_len   = CMSG_LEN(sizeof(fd));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    return sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
}

int receive_descriptor(int socket)
{
    descriptor_message message;
    if (recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) != 1) {
        return -1;
    }
    const cmsghdr *rights = CMSG_FIRSTHDR(&message.header);
    if ((rights == nullptr) || (rights->cmsg_type != SCM_RIGHTS)) {
        return -1;
    }
    int fd;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    return fd;
}

int make_output_file()
{
    const int fd = memfd_create("output", MFD_CLOEXEC);
    if ((fd < 0) || (fcntl(fd, F_SETFL, O_APPEND) != 0)) {
        throw std::runtime_error("memfd_create failed");
    }
    return fd;
}

std::string read_output_file(int fd)
{
    std::string text;
    char part[4096];
    ssize_t count;
    while ((count = pread(fd, part, sizeof(part),
                          static_cast<off_t>(text.size()))) > 0) {
        text.append(part, static_cast<size_t>(count));
    }
    return text;
}

} // namespace gaudi::test
