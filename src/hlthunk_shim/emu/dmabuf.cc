#include "hlthunk_shim/emu/dmabuf.h"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr uint64_t dmabuf_magic = 0x3166756264756167; /* "gaudbuf1" */

struct dmabuf_header {
    uint64_t magic;
    uint64_t run_count;
};

} // namespace

int create_dmabuf(int memory_fd, int holder_fd,
                  const std::vector<hbm_run> &runs, int &keeper_p)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return -errno;
    }

    dmabuf_header header{dmabuf_magic, runs.size()};
    iovec parts[2] = {
        {&header, sizeof(header)},
        {const_cast<hbm_run *>(runs.data()), runs.size() * sizeof(hbm_run)}};
    const int attachments[2] = {memory_fd, holder_fd};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(attachments))] = {};
    msghdr message{};
    message.msg_iov        = parts;
    message.msg_iovlen     = 2;
    message.msg_control    = control;
    message.msg_controllen = sizeof(control);
    cmsghdr *attached      = CMSG_FIRSTHDR(&message);
    attached->cmsg_level   = SOL_SOCKET;
    attached->cmsg_type    = SCM_RIGHTS;
    attached->cmsg_len     = CMSG_LEN(sizeof(attachments));
    std::memcpy(CMSG_DATA(attached), attachments, sizeof(attachments));

    if (sendmsg(pair[0], &message, MSG_NOSIGNAL) < 0) {
        int ret = -errno;
        close(pair[0]);
        close(pair[1]);
        return ret;
    }
    keeper_p = pair[0];
    return pair[1];
}

bool dmabuf_is_alive(int keeper)
{
    pollfd state{keeper, 0, 0};
    return (poll(&state, 1, 0) == 0) || ((state.revents & POLLHUP) == 0);
}

} // namespace gaudi::emu
