/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/exported_buffer.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/file_lock.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr uint64_t dmabuf_magic = 0x3566756264756167; /* "gaudbuf5" */
/* More pieces than the largest card has pages. */
constexpr uint64_t max_runs = 1 << 16;

struct dmabuf_header {
    uint64_t magic;
    uint64_t size; /* bytes of all runs */
    uint64_t run_count;
    uint64_t card; /* index in the box */
};

/* What is attached to the message. */
enum attachment { memory, holder, attachments };

using control_buffer = char[CMSG_SPACE(attachments * sizeof(int))];

/* Another file description of the memory, with the lock. */
int open_marked(int memory_fd, uint64_t mark)
{
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", memory_fd);
    util::unique_fd opened(open(path, O_RDWR | O_CLOEXEC));
    if (!opened) {
        return -errno;
    }
    const int ret = set_lock(opened.get(), F_RDLCK, static_cast<off_t>(mark));
    return (ret != 0) ? ret : opened.release();
}

/* Header and runs, with room for what is attached. */
msghdr message_of(iovec (&parts)[2], control_buffer &control)
{
    msghdr message{};
    message.msg_iov        = parts;
    message.msg_iovlen     = 2;
    message.msg_control    = control;
    message.msg_controllen = sizeof(control);
    return message;
}

/* Look at the message; whatever does not have it is no dma-buf of ours. */
ssize_t peek(int fd, msghdr &message)
{
    return recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
}

int read_header(int fd, dmabuf_header &header)
{
    iovec part{&header, sizeof(header)};
    msghdr message{};
    message.msg_iov    = &part;
    message.msg_iovlen = 1;

    const ssize_t bytes = peek(fd, message);
    if ((bytes < 0) && (errno == EBADF)) {
        return -EBADF;
    }
    return ((bytes == sizeof(header)) && (header.magic == dmabuf_magic) &&
            (header.run_count <= max_runs) && (header.card < max_cards))
               ? 0
               : -EINVAL;
}

/* Whether the runs are pages of a file that cannot shrink: touching them never
 * is a fault. */
bool are_sound(int memory_fd, const std::vector<hbm_run> &runs, uint64_t size)
{
    const uint64_t end = util::lasting_length(memory_fd);
    for (const hbm_run &run : runs) {
        if ((run.offset % host_page != 0) || (run.size % host_page != 0) ||
            (run.offset > end) || (run.size > end - run.offset) ||
            (run.size > size)) {
            return false;
        }
        size -= run.size;
    }
    return size == 0;
}

/* Leave the first bytes alone. */
void cut(std::vector<hbm_run> &runs, uint64_t size)
{
    for (hbm_run &run : runs) {
        run.size = std::min(run.size, size);
        size -= run.size;
    }
    std::erase_if(runs, [](const hbm_run &run) { return run.size == 0; });
}

} // namespace

int create_dmabuf(int memory_fd, int holder_fd, unsigned card, uint64_t mark,
                  const std::vector<hbm_run> &runs)
{
    const util::unique_fd marked(open_marked(memory_fd, mark));
    if (marked.get() < 0) {
        return marked.get();
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return -errno;
    }
    const util::unique_fd sender(pair[0]);
    util::unique_fd dmabuf(pair[1]);

    dmabuf_header header{dmabuf_magic, 0, runs.size(), card};
    for (const hbm_run &run : runs) {
        header.size += run.size;
    }
    iovec parts[2] = {
        {&header, sizeof(header)},
        {const_cast<hbm_run *>(runs.data()), runs.size() * sizeof(hbm_run)}};
    const int attached[attachments] = {marked.get(), holder_fd};
    alignas(cmsghdr) control_buffer control{};
    msghdr message     = message_of(parts, control);
    cmsghdr *rights    = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type  = SCM_RIGHTS;
    rights->cmsg_len   = CMSG_LEN(sizeof(attached));
    std::memcpy(CMSG_DATA(rights), attached, sizeof(attached));

    return (sendmsg(sender.get(), &message, MSG_NOSIGNAL) < 0)
               ? -errno
               : dmabuf.release();
}

bool is_exported(int memory_fd, uint64_t mark)
{
    return is_locked(memory_fd, static_cast<off_t>(mark));
}

int64_t size_of_dmabuf(int fd)
{
    dmabuf_header header{};
    const int ret = read_header(fd, header);
    return (ret != 0) ? ret : static_cast<int64_t>(header.size);
}

int imported_memory::create(int fd, uint64_t size, imported_memory &memory_p)
{
    util::unique_fd dmabuf(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (dmabuf.get() < 0) {
        return -errno;
    }
    dmabuf_header header{};
    const int ret = read_header(dmabuf.get(), header);
    if (ret != 0) {
        return ret;
    }
    if ((size == 0) || (size > header.size)) {
        return -EINVAL;
    }

    std::vector<hbm_run> runs(header.run_count);
    iovec parts[2] = {{&header, sizeof(header)},
                      {runs.data(), runs.size() * sizeof(hbm_run)}};
    alignas(cmsghdr) control_buffer control{};
    msghdr message = message_of(parts, control);

    const ssize_t bytes   = peek(dmabuf.get(), message);
    const cmsghdr *rights = CMSG_FIRSTHDR(&message);
    util::unique_fd attached[attachments];
    if ((bytes >= 0) && (rights != nullptr) &&
        (rights->cmsg_level == SOL_SOCKET) &&
        (rights->cmsg_type == SCM_RIGHTS)) {
        const size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int received;
            std::memcpy(&received, CMSG_DATA(rights) + i * sizeof(int),
                        sizeof(int));
            attached[i].reset(received);
        }
    }
    if ((bytes != static_cast<ssize_t>(parts[0].iov_len + parts[1].iov_len)) ||
        (attached[holder].get() < 0) ||
        !are_sound(attached[memory].get(), runs, header.size)) {
        /* Without room for descriptors the kernel leaves them out. */
        return ((message.msg_flags & MSG_CTRUNC) != 0) ? -EMFILE : -EINVAL;
    }

    cut(runs, util::round_up(size, host_page));
    imported_memory created;
    created.mapping_ = map_runs(attached[memory].get(), runs);
    if (created.mapping_.start() == nullptr) {
        return -ENOMEM;
    }
    created.fd_                 = std::move(dmabuf);
    created.closed_in_children_ = util::closed_in_children(created.fd_.get());
    created.card_               = static_cast<unsigned>(header.card);
    memory_p                    = std::move(created);
    return 0;
}

} // namespace gaudi::emu
