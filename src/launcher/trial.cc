/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/trial.h"

#include "util/text.h"
#include "util/unique_fd.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launcher {

namespace {

using gaudi::util::unique_fd;
using std::chrono::milliseconds;

constexpr milliseconds longest_trial{20000};

/* A process that is killed is gone at once, but for one that waits inside the
 * kernel for a driver. */
constexpr milliseconds time_to_die{5000};

/* Whether a process ends in time. */
bool ends_in_time(const unique_fd &pidfd, milliseconds limit)
{
    pollfd waited = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    return !pidfd || (poll(&waited, 1, static_cast<int>(limit.count())) != 0);
}

/* The first complaint of UCX's log, without what it puts before a message. */
std::string find_complaint(const std::string &output)
{
    std::istringstream log(output);
    for (std::string line; std::getline(log, line);) {
        for (const char *level :
             {"UCX  WARN  ", "UCX  ERROR ", "UCX  FATAL ", " Fatal: "}) {
            const size_t found = line.find(level);
            if (found != line.npos) {
                return line.substr(found + std::strlen(level));
            }
        }
    }
    return "";
}

} // namespace

std::string last_line(const std::string &output, const std::string &mark)
{
    std::istringstream lines(output);
    std::string last;
    for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line.starts_with(mark)) {
            last = line.substr(mark.size());
        }
    }
    return gaudi::util::to_printable(last);
}

std::string trial::activity() const
{
    const std::string doing = last_line(output, doing_mark);
    return doing.empty() ? "" : " while " + doing;
}

trial run_in_child(const std::function<int()> &body, milliseconds limit)
{
    using clock = std::chrono::steady_clock;

    const unique_fd output(memfd_create("trial", MFD_CLOEXEC));
    const auto start = clock::now();
    std::fflush(nullptr); /* else the child would print it, too */
    const pid_t child = output ? fork() : -1;
    if (child < 0) {
        const char *call = output ? "fork: " : "memfd_create: ";
        return {.how    = trial::end::unborn,
                .output = std::string(call) + std::strerror(errno)};
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(output.get(), STDOUT_FILENO);
        dup2(output.get(), STDERR_FILENO);
        int code = -1;
        try {
            code = body();
        } catch (const std::exception &error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        std::fflush(nullptr);
        _exit(code);
    }
    trial result;
    int status = 0;
    const unique_fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    const bool late = !ends_in_time(pidfd, limit);
    if (late) {
        kill(child, SIGKILL);
    }
    if (late && !ends_in_time(pidfd, time_to_die)) {
        result.how = trial::end::stuck;
    } else {
        waitpid(child, &status, 0);
        result.how = late                  ? trial::end::late
                     : WIFSIGNALED(status) ? trial::end::killed
                                           : trial::end::exited;
        result.code =
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    }
    result.seconds =
        std::chrono::duration<double>(clock::now() - start).count();
    std::ifstream text("/proc/self/fd/" + std::to_string(output.get()));
    result.output.assign(std::istreambuf_iterator<char>(text), {});
    return result;
}

std::string try_in_child(const std::function<std::string()> &body,
                         std::string *printed_p)
{
    trial ended = run_in_child(
        [&] {
            const std::string why = body();
            std::fputs((why + "\n").c_str(), stderr);
            return why.empty() ? 0 : 1;
        },
        longest_trial);
    if ((ended.how == trial::end::exited) && (ended.code == 0)) {
        if (printed_p != nullptr) {
            *printed_p = std::move(ended.output);
        }
        return "";
    }
    std::string reason = find_complaint(ended.output);
    if (ended.how == trial::end::killed) {
        reason = "a program that opens it ends by signal " +
                 std::to_string(ended.code) + ended.activity() +
                 (reason.empty() ? "" : ": " + reason);
    } else if ((ended.how == trial::end::late) ||
               (ended.how == trial::end::stuck)) {
        reason = "a program that opens it hangs" + ended.activity();
    } else if (reason.empty()) {
        reason = ended.output.substr(0, ended.output.find('\n'));
    }
    return reason.empty() ? "it ends the program" + ended.activity()
                          : gaudi::util::to_printable(reason);
}

} // namespace launcher
