#include "launcher/trial.h"

#include "hlthunk_shim/driver.h"
#include "util/library_file.h"
#include "util/unique_fd.h"

#include <climits>
#include <cstdio>
#include <cstring>
#include <sstream>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launcher {

namespace {

constexpr unsigned most_seconds = 20;

/* How a trial ended. */
struct outcome {
    int status;       /* as waitpid has it; -1: there was no child */
    std::string text; /* what it printed */
};

/* In the child. Returns its exit code, 0 when the module has registered. */
int open_module(const char *file)
{
    using function = int (*)();

    char why[PATH_MAX + 100];
    if (gaudi_may_be_loaded(file, why, sizeof(why)) == 0) {
        std::fprintf(stderr, "%s\n", why);
        return 1;
    }
    void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    auto is_registered =
        reinterpret_cast<function>(dlsym(module, "uct_gaudi_is_registered"));
    if (is_registered == nullptr) {
        std::fprintf(stderr, "it is no module: %s\n", dlerror());
        return 1;
    }
    return (is_registered() != 0) ? 0 : 1;
}

/* The same of SynapseAI, when it can be used. */
int open_synapse()
{
    const std::string why = gaudi::shim::driver::why_no_synapse();
    if (why.empty()) {
        return 0;
    }
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
}

/* body  Runs in a child, and returns its exit code. */
template <typename Body>
outcome run_trial(Body &&body)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return {-1, "no pipe can be made"};
    }
    gaudi::util::unique_fd from(ends[0]);
    gaudi::util::unique_fd to(ends[1]);
    const pid_t child = fork();
    if (child < 0) {
        return {-1, "no process can be made"};
    }
    if (child == 0) {
        alarm(most_seconds);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        const int code = body();
        std::fflush(nullptr);
        _exit(code);
    }
    to.reset();
    outcome result{-1, ""};
    char part[4096];
    for (ssize_t size; (size = read(ends[0], part, sizeof(part))) > 0;) {
        result.text.append(part, static_cast<size_t>(size));
    }
    waitpid(child, &result.status, 0);
    return result;
}

/* The first complaint of UCX's log, without what it puts before a message. */
std::string complaint_of(const std::string &text)
{
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
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

/* Why a trial ended badly; empty: it does not say. */
std::string reason_of(const outcome &result)
{
    const std::string complaint = complaint_of(result.text);
    if ((result.status != -1) && WIFSIGNALED(result.status)) {
        return "a program that opens it ends by signal " +
               std::to_string(WTERMSIG(result.status)) +
               (complaint.empty() ? "" : ": " + complaint);
    }
    return !complaint.empty() ? complaint
                              : result.text.substr(0, result.text.find('\n'));
}

} // namespace

problems try_module(const installation &files, const found_ucx &ucx)
{
    const std::string file = module_for(files, *ucx.release).string();
    const outcome result = run_trial([&] { return open_module(file.c_str()); });
    if (result.status == 0) {
        return {};
    }
    std::string reason = reason_of(result);
    if (reason.empty()) {
        reason = "it registers nothing";
    }
    const bool is_setting = (reason.find("UCX_GAUDI_") != reason.npos);
    return {{"the module for UCX " + ucx.version + " at " + ucx.libucp +
                 " cannot be used: " + to_printable(reason),
             is_setting ? "see to that setting"
                        : "install or build ucx-gaudi again, for this UCX and "
                          "this system (" +
                              file + ")"}};
}

std::string try_synapse()
{
    const outcome result = run_trial(open_synapse);
    if (result.status == 0) {
        return "";
    }
    const std::string reason = reason_of(result);
    return reason.empty() ? "it ends the program" : reason;
}

} // namespace launcher
