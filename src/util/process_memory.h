/**
 * Host memory of another process, read and written through the kernel
 * (process_vm_readv and process_vm_writev).
 *
 * Stateless but for the names of the process; any thread.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

namespace gaudi::util {

class process_memory {
public:
    /**
     * @param pid    Of the process, in our PID namespace.
     * @param pidfd  Of the same process; borrowed, and open as long as this
     *               object is used. It tells a process from a later one with
     *               its pid. -1: nothing does.
     */
    process_memory(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

    /**
     * Read host memory of the process.
     *
     * @param local  May be bad: that is an error, too, and no signal.
     * @return 0; -EFAULT for memory that is not there, -EPERM when we may not,
     *         -ESRCH when the process is gone, or another -errno. After a
     *         failure some of the bytes may have been read.
     */
    [[nodiscard]] int read(void *local, uint64_t remote, size_t length) const;

    /** Write host memory of the process. @return As @ref read. */
    [[nodiscard]] int write(uint64_t remote, const void *local,
                            size_t length) const;

    /**
     * Find out whether @ref read and @ref write have a chance, without knowing
     * an address.
     *
     * @return 0; -EPERM when we may not, -ENOSYS when the kernel has no such
     *         calls or a sandbox forbids them all, -ESRCH when the process is
     *         gone, or another -errno.
     */
    [[nodiscard]] int probe() const;

    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_;
    int pidfd_;
};

} // namespace gaudi::util
