/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Threads that serve a program without being seen by it.
 *
 * Knows no driver library: the emulator uses it, too.
 */
#pragma once

#include <functional>

namespace gaudi::util {

/**
 * Start a thread that runs until its body returns or the process ends.
 *
 * A body that throws is run again a little later, and a warning tells why: what
 * it serves goes on, even if nobody can be warned.
 *
 * The application's signal handlers never run on it: all signals are blocked,
 * but those of its own faults in memory. Where the system can do so
 * (Linux 6.12), it gets a core soon after it wakes, even if programs compute on
 * all of them.
 *
 * @param name  What tools show of it, from the return of this call on; up to 15
 *              characters.
 * @param body  What it runs.
 * @throws std::system_error when the system has no thread to give.
 */
void start_background_thread(const char *name, std::function<void()> body);

} // namespace gaudi::util
