/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/channel.h"

#include "common/descriptor.h"
#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr char gone[] = "the other side is gone";

} // namespace

void channel::send(const void *data, size_t size) const
{
    for (size_t done = 0; done < size;) {
        const ssize_t count =
            ::send(fd(), static_cast<const char *>(data) + done, size - done,
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
            recv(fd(), static_cast<char *>(data) + done, size - done, 0);
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
    if (!gaudi::test::send_descriptor(fd(), ends[1])) {
        die("socket", gone);
    }
    close(ends[1]);
    return channel(ends[0]);
}

channel channel::accept_another() const
{
    const int fd = gaudi::test::receive_descriptor(fd_.get());
    if (fd < 0) {
        die("socket", "a file descriptor was expected");
    }
    return channel(fd);
}

bool channel::try_hear(char &letter) const
{
    const std::optional<char> heard = listen();
    if (heard == 0) {
        die("socket", gone);
    }
    letter = heard.value_or(letter);
    return heard.has_value();
}

std::optional<char> channel::listen() const
{
    char letter         = 0;
    const ssize_t count = recv(fd(), &letter, 1, MSG_DONTWAIT);
    if (count > 0) {
        return letter;
    }
    return ((count < 0) && (errno == EAGAIN)) ? std::nullopt
                                              : std::optional<char>(0);
}

void channel::whisper(char letter) const
{
    (void)::send(fd(), &letter, 1, MSG_NOSIGNAL);
}

another_process::another_process(std::vector<std::string> words)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        die("socketpair", std::strerror(errno));
    }
    socket_.emplace(ends[0]);
    const channel theirs(ends[1]);
    if (ends[1] == peer_fd) {
        die("socketpair", "took the number of the peers' socket");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], peer_fd);
    char self[PATH_MAX] = {};
    (void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
    words.insert(words.begin(), self);
    if (const char *around = std::getenv("GAUDI_TEST_AROUND_PEERS")) {
        std::istringstream prefix(around);
        words.insert(words.begin(), std::istream_iterator<std::string>(prefix),
                     {});
    }
    std::vector<char *> argv;
    for (std::string &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const int error =
        posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        die("posix_spawn", std::strerror(error));
    }
}

void another_process::end()
{
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
}

void another_process::send(int signal) const
{
    kill(pid_, signal);
}

int another_process::wait()
{
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
}

void another_process::expect_end()
{
    const int status = wait();
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        die("another process", "ended badly");
    }
}

} // namespace peer
