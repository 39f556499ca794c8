#include "util/process_memory.h"

#include "util/process_life.h"

#include <algorithm>
#include <cerrno>

#include <sys/uio.h>

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
