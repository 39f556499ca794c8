#include "hlthunk_shim/cards/driver.h"
#include "launcher/info.h"
#include "util/text.h"
#include "util/unique_fd.h"

#include <cstdio>
#include <cstring>
#include <fstream>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launcher {

namespace {

constexpr unsigned most_seconds = 20;

/* The first complaint of UCX's log, without what it puts before a message. */
std::string find_complaint(std::istream &log)
{
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

std::string try_in_child(const std::function<std::string()> &body)
{
    const gaudi::util::unique_fd output(memfd_create("trial", MFD_CLOEXEC));
    const pid_t child = output ? fork() : -1;
    if (child < 0) {
        return "no process can be made";
    }
    if (child == 0) {
        alarm(most_seconds);
        dup2(output.get(), STDOUT_FILENO);
        dup2(output.get(), STDERR_FILENO);
        const std::string why = body();
        std::fputs((why + "\n").c_str(), stderr);
        std::fflush(nullptr);
        _exit(why.empty() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status == 0) {
        return "";
    }
    const std::string name = "/proc/self/fd/" + std::to_string(output.get());
    std::ifstream log(name);
    std::string reason = find_complaint(log);
    if (WIFSIGNALED(status)) {
        reason = "a program that opens it ends by signal " +
                 std::to_string(WTERMSIG(status)) +
                 (reason.empty() ? "" : ": " + reason);
    } else if (reason.empty()) {
        reason = gaudi::util::first_line(name);
    }
    return reason.empty() ? "it ends the program"
                          : gaudi::util::to_printable(reason);
}

} // namespace launcher
