/* SPDX-License-Identifier: BSD-3-Clause */
#include "other_process.h"

#include "transport.h"

#include <cstdlib>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::bench {

int start_other_process(void (*be)(int socket))
{
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
            "socketpair");
    const pid_t self = getpid();
    const pid_t pid  = fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        require(getppid() == self, "finding the parent");
        be(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

void send_all(int to, const void *data, size_t size)
{
    require(send(to, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size),
            "sending to the other process");
}

void receive_all(int from, void *data, size_t size)
{
    require(recv(from, data, size, MSG_WAITALL) == static_cast<ssize_t>(size),
            "receiving from the other process");
}

} // namespace gaudi::bench
