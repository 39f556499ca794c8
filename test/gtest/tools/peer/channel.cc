#include "gtest/tools/peer/channel.h"

#include "common/descriptor.h"
#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr char gone[] = "the other side is gone";

} // namespace

channel::channel(channel &&other) noexcept : fd_(std::exchange(other.fd_, -1))
{}

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
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        die("socketpair", std::strerror(errno));
    }
    if (!gaudi::test::send_descriptor(fd_, ends[1])) {
        die("socket", gone);
    }
    close(ends[1]);
    return channel(ends[0]);
}

channel channel::accept_another() const
{
    const int fd = gaudi::test::receive_descriptor(fd_);
    if (fd < 0) {
        die("socket", "a file descriptor was expected");
    }
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
