#include "hlthunk_shim/cards/driver.h"
#include "launcher/info.h"
#include "util/library_file.h"
#include "util/text.h"
#include "util/unique_fd.h"

#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launcher {

namespace {

constexpr unsigned most_seconds = 20;

/* In the child. Returns as try_module does. */
std::string open_module(const std::string &file)
{
    using function = int (*)();

    char why[PATH_MAX + 100];
    if (gaudi_may_be_loaded(file.c_str(), why, sizeof(why)) == 0) {
        return why;
    }
    void *module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        return dlerror();
    }
    auto is_registered =
        reinterpret_cast<function>(dlsym(module, "uct_gaudi_is_registered"));
    if (is_registered == nullptr) {
        return std::string("it is no module: ") + dlerror();
    }
    return (is_registered() != 0) ? "" : "it registers nothing";
}

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

/* body  Returns what is wrong, in a child; it may end it, and print. */
template <typename Body>
std::string run_trial(Body &&body)
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

} // namespace

std::string try_module(const std::string &file)
{
    return run_trial([&] { return open_module(file); });
}

std::string try_synapse()
{
    return run_trial(gaudi::shim::driver::why_no_synapse);
}

} // namespace launcher
