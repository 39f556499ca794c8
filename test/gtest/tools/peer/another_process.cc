#include "gtest/tools/peer/another_process.h"

#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace peer {

another_process::another_process(std::vector<std::string> words)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        die("socketpair", std::strerror(errno));
    }
    socket_ = std::make_unique<channel>(ends[0]);
    const channel theirs(ends[1]);
    if (ends[1] == peer_fd) {
        die("socketpair", "took the number of the peers' socket");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], peer_fd);
    words.insert(words.begin(), "/proc/self/exe");
    std::vector<char *> argv;
    for (std::string &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const int error =
        posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
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

void another_process::expect_end()
{
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        die("another process", "ended badly");
    }
}

} // namespace peer
