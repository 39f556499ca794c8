/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Other processes of the same PID namespace: whether they still run, and their
 * memory.
 *
 * A pid names a process only until another one gets it; with the time when it
 * started, it names no other. Stateless; any thread.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

namespace gaudi::util {

/** What @ref process_start_time says when it cannot look, for want of file
 *  descriptors or memory. No process started then. */
inline constexpr uint64_t unknown_start_time = UINT64_MAX;

/**
 * When a process started.
 *
 * @return Clock ticks since boot; 0 when there is none with this pid, or /proc
 *         does not say; or unknown_start_time.
 */
[[nodiscard]] uint64_t process_start_time(uint32_t pid);

/** A process in one word: its pid, and above that the low bits of the time when
 *  it started. Never 0. */
[[nodiscard]] constexpr uint64_t process_word(uint32_t pid, uint64_t start_time)
{
    return (start_time << 32) | pid;
}

/** A descriptor that is readable when the process with this pid has ended.
 *  @return None on failure, with errno. */
[[nodiscard]] unique_fd open_pidfd(uint32_t pid);

/** Whether the process of a pidfd has ended, as far as the kernel tells: not
 *  for -1. A system call. */
[[nodiscard]] bool has_ended(int pidfd);

/** Whether the process that a word names has ended. One that cannot be looked
 *  at is taken to live. A few system calls. */
[[nodiscard]] bool process_has_ended(uint64_t word);

/** Host memory of another process, read and written through the kernel
 *  (process_vm_readv and process_vm_writev). */
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
