/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Locks of bytes of a file, by which processes know of each other. A lock
 * belongs to the opening of the file, and goes with it.
 */
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>

namespace gaudi::emu {

namespace detail {
inline flock lock_of(short type, off_t start, off_t length)
{
    flock lock{};
    lock.l_type   = type;
    lock.l_whence = SEEK_SET;
    lock.l_start  = start;
    lock.l_len    = length;
    return lock;
}
} // namespace detail

/** Take or give back a lock. @param length  Bytes, 0: to the end of the file.
 *  @return 0, -EBUSY while another opening is in the way, or -errno. */
inline int set_lock(int fd, short type, off_t start, off_t length = 1)
{
    flock lock = detail::lock_of(type, start, length);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    return ((errno == EAGAIN) || (errno == EACCES)) ? -EBUSY : -errno;
}

/** Take a lock, however long another opening has it. @return 0 or -errno. */
[[nodiscard]] inline int wait_for_lock(int fd, off_t start)
{
    flock lock = detail::lock_of(F_WRLCK, start, 1);
    while (fcntl(fd, F_OFD_SETLKW, &lock) != 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/** Whether another opening has a lock, of whatever type. */
inline bool is_locked(int fd, off_t start, off_t length = 1)
{
    flock lock = detail::lock_of(F_WRLCK, start, length);
    return (fcntl(fd, F_OFD_GETLK, &lock) != 0) || (lock.l_type != F_UNLCK);
}

/** Try again while the answer is -EBUSY, but not for longer than this. */
template <typename Attempt>
int wait_while_busy(std::chrono::seconds longest, Attempt &&attempt)
{
    const auto deadline = std::chrono::steady_clock::now() + longest;
    for (;;) {
        const int ret = attempt();
        if ((ret != -EBUSY) || (std::chrono::steady_clock::now() >= deadline)) {
            return ret;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

} // namespace gaudi::emu
