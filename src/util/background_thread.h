/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Threads that serve a program without being seen by it.
 *
 * Knows no driver library: the emulator uses it, too.
 */
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace gaudi::util {

/**
 * Start a thread that runs until its body returns or the process ends.
 *
 * A body that throws is run again a little later, and a warning tells why: what
 * it serves goes on, even if nobody can be warned.
 *
 * The application's signal handlers never run on it: all signals are blocked.
 *
 * @param name  What tools show of it, from the return of this call on; up to 15
 *              characters.
 * @param body  What it runs.
 * @throws std::system_error when the system has no thread to give.
 */
void start_background_thread(const char *name, std::function<void()> body);

/**
 * A call that is made a little after somebody has asked for it, by a thread of
 * its own.
 *
 * It may be asked for where hardly anything is allowed: in a handler of memory
 * events, in a callback under UCX's locks, and while the process forks. Asking
 * again before the call does nothing more. Not UCX's thread for asynchronous
 * events: forked children have none, but UCX believes that they do.
 *
 * Threads: any may ask; the rest is the owner's.
 */
class delayed_call {
public:
    /** From asking to the call. */
    static constexpr std::chrono::milliseconds delay{100};

    explicit delayed_call(std::function<void()> call);
    ~delayed_call() { stop(); }
    delayed_call(const delayed_call &)            = delete;
    delayed_call &operator=(const delayed_call &) = delete;

    /** Have the thread, from now on; cheap when it is there. Any thread.
     *  @return Empty, or why the system has none to give: calls wait for the
     *          next try. */
    [[nodiscard]] std::string start();

    /** Takes no lock, and allocates nothing. Not in a forked child. */
    void ask();

    /** Waits for a call that is being made, and lets no more be made. */
    void stop();

private:
    struct shared;

    const std::shared_ptr<shared> shared_; /* with the thread */
};

} // namespace gaudi::util
