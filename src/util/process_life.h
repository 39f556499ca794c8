/**
 * Whether another process still runs, of the same PID namespace.
 *
 * A pid names a process only until another one gets it; with the time when it
 * started, it names no other. Stateless; any thread.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstdint>

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

} // namespace gaudi::util
