/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/other_process.h"

#include "util/errors.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gaudi::util {

namespace {

using vm_call = ssize_t (*)(pid_t, const iovec *, unsigned long, const iovec *,
                            unsigned long, unsigned long);

/* Move bytes until there are none left: a call ends early at 2 GiB, and before
 * memory that is not there, which the next one then says. */
int move(vm_call call, pid_t pid, void *local, uint64_t remote, size_t length)
{
    auto *here = static_cast<char *>(local);
    while (length > 0) {
        const iovec ours{here, length};
        const iovec theirs{reinterpret_cast<void *>(remote), length};
        const ssize_t moved = call(pid, &ours, 1, &theirs, 1, 0);
        if (moved <= 0) {
            return (moved == 0) ? -EFAULT : -errno;
        }
        here += moved;
        remote += static_cast<uint64_t>(moved);
        length -= static_cast<size_t>(moved);
    }
    return 0;
}

} // namespace

uint64_t process_start_time(uint32_t pid)
{
    constexpr unsigned wanted = 22;

    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const unique_fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        return may_pass(errno) ? unknown_start_time : 0;
    }
    char text[1024];
    const ssize_t length = read(fd.get(), text, sizeof(text) - 1);
    if (length <= 0) {
        return ((length == 0) || (errno == ESRCH)) ? 0 : unknown_start_time;
    }
    text[length] = '\0';
    /* The second field is the program's name in parentheses, whatever that
     * contains. */
    std::string_view rest(text, static_cast<size_t>(length));
    size_t position = rest.rfind(')');
    for (unsigned field = 2; field < wanted; ++field) {
        position = rest.find(' ', position);
        if (position == std::string_view::npos) {
            return 0;
        }
        ++position;
    }
    return std::strtoull(rest.data() + position, nullptr, 10);
}

unique_fd open_pidfd(uint32_t pid)
{
    return unique_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(int pidfd)
{
    pollfd ended{pidfd, POLLIN, 0};
    int count;
    do {
        count = poll(&ended, 1, 0);
    } while ((count < 0) && (errno == EINTR));
    return count > 0;
}

bool process_has_ended(uint64_t word)
{
    const auto pid       = static_cast<uint32_t>(word);
    const uint64_t start = process_start_time(pid);
    if ((start != 0) && (start != unknown_start_time) &&
        (process_word(pid, start) != word)) {
        return true; /* the pid is another one's */
    }
    const unique_fd pidfd = open_pidfd(pid);
    if (pidfd) {
        return has_ended(pidfd.get());
    }
    return (errno == ESRCH) || (errno == EINVAL /* no pid */) ||
           ((kill(static_cast<pid_t>(pid), 0) != 0) && (errno == ESRCH));
}

/* The pid was the process's all the time if it still is afterwards. */
int process_memory::read(void *local, uint64_t remote, size_t length) const
{
    const int ret = move(process_vm_readv, pid_, local, remote, length);
    return ((length > 0) && has_ended(pidfd_)) ? -ESRCH : ret;
}

/* Asked before: a write cannot be undone. */
int process_memory::write(uint64_t remote, const void *local,
                          size_t length) const
{
    if ((length > 0) && has_ended(pidfd_)) {
        return -ESRCH;
    }
    return move(process_vm_writev, pid_, const_cast<void *>(local), remote,
                length);
}

int process_memory::probe() const
{
    /* The right to do it comes before the look at the address, which is none;
     * reads of 0 bytes ask for no right. */
    char byte;
    const int ret = read(&byte, 0, sizeof(byte));
    return (ret == -EFAULT) ? 0 : ret;
}

} // namespace gaudi::util
