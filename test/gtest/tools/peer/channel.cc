#include "gtest/tools/peer/channel.h"

#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr char gone[] = "the other side is gone";

/* A message that carries one file descriptor beside one byte. */
struct fd_message {
    char letter = 'f';
    iovec bytes{&letter, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};

    fd_message()
    {
        header.msg_iov        = &bytes;
        header.msg_iovlen     = 1;
        header.msg_control    = control;
        header.msg_controllen = sizeof(control);
    }
};

} // namespace

channel::channel(channel &&other) noexcept : fd_(other.fd_)
{
    other.fd_ = -1;
}

channel::~channel()
{
    if (fd_ >= 0) {
        close(fd_);
    }
}

void channel::send(const void *data, size_t size) const
{
    for (size_t done = 0; done < size;) {
        const ssize_t count =
            ::send(fd_, static_cast<const char *>(data) + done, size - done,
                   MSG_NOSIGNAL);
        if (count <= 0) {
            die("socket", gone);
        }
        done += static_cast<size_t>(count);
    }
}

void channel::receive(void *data, size_t size) const
{
    for (size_t done = 0; done < size;) {
        const ssize_t count =
            recv(fd_, static_cast<char *>(data) + done, size - done, 0);
        if (count <= 0) {
            die("socket", gone);
        }
        done += static_cast<size_t>(count);
    }
}

void channel::send_block(const std::vector<char> &data) const
{
    const size_t size = data.size();
    send(&size, sizeof(size));
    send(data.data(), size);
}

std::vector<char> channel::receive_block() const
{
    size_t size = 0;
    receive(&size, sizeof(size));
    std::vector<char> data(size);
    receive(data.data(), size);
    return data;
}

std::vector<char> channel::exchange(const std::vector<char> &data) const
{
    send_block(data);
    return receive_block();
}

char channel::hear() const
{
    char letter = 0;
    receive(&letter, 1);
    return letter;
}

channel channel::make_another() const
{
    int ends[2];
    fd_message message;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        die("socketpair", std::strerror(errno));
    }
    cmsghdr *control    = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type  = SCM_RIGHTS;
    control->cmsg_len   = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &ends[1], sizeof(int));
    if (sendmsg(fd_, &message.header, MSG_NOSIGNAL) != 1) {
        die("socket", gone);
    }
    close(ends[1]);
    return channel(ends[0]);
}

channel channel::accept_another() const
{
    fd_message message;
    int fd = -1;
    if (recvmsg(fd_, &message.header, MSG_CMSG_CLOEXEC) != 1) {
        die("socket", gone);
    }
    const cmsghdr *control = CMSG_FIRSTHDR(&message.header);
    if ((control == nullptr) || (control->cmsg_type != SCM_RIGHTS)) {
        die("socket", "a file descriptor was expected");
    }
    std::memcpy(&fd, CMSG_DATA(control), sizeof(fd));
    return channel(fd);
}

bool channel::try_hear(char &letter) const
{
    const ssize_t count = recv(fd_, &letter, 1, MSG_DONTWAIT);
    if ((count == 0) || ((count < 0) && (errno != EAGAIN))) {
        die("socket", gone);
    }
    return count == 1;
}

} // namespace peer
