/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/child.h"

#include "common/descriptor.h"
#include "common/namespaces.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace gaudi::test {

namespace {

/* CTest ends a test after 120 s. Linux 6.18 has stalled both cores for 54 s. */
constexpr int deadline_ms      = 90000;
constexpr unsigned lifetime_s  = 100;
constexpr const char *argument = "--gaudi-child=";

std::map<std::string, int (*)()> &bodies()
{
    static std::map<std::string, int (*)()> result;
    return result;
}

void make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) {
        throw std::runtime_error("pipe2 failed");
    }
}

/* The box of a child whose cards are other ones: processes of one box have to
 * agree on these. Empty: the test's. */
std::string box_of(const child_options &options)
{
    std::string settings;
    for (const auto &[name, value] : options.environment) {
        for (const char *shared : {"ASIC", "DEVICES", "HBM", "DRAM_PAGE",
                                   "IMPORT", "PORTS", "EDMA", "TIMING"}) {
            if (name == std::string("HLTHUNK_EMU_") + shared) {
                settings += name + value;
            }
        }
        if (name == "HLTHUNK_EMU_NODE") {
            return "";
        }
    }
    const char *own = std::getenv("HLTHUNK_EMU_NODE");
    return (settings.empty() || (own == nullptr))
               ? ""
               : own + ("-" + std::to_string(
                                  std::hash<std::string>()(settings) % 65536));
}

std::vector<std::string> make_environment(const child_options &wished)
{
    child_options options = wished;
    const std::string box = box_of(options);
    if (!box.empty()) {
        options.environment.emplace_back("HLTHUNK_EMU_NODE", box);
    }
    std::vector<std::string> result;
    for (const auto &[name, value] : options.environment) {
        result.push_back(name + "=" + value);
    }
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        bool replaced          = false;
        for (const auto &[name, value] : options.environment) {
            replaced = replaced || text.starts_with(name + "=");
        }
        if (!replaced) {
            result.push_back(text);
        }
    }
    return result;
}

/* A child's stdout is for its test. */
class failures_on_stderr : public ::testing::EmptyTestEventListener {
    void OnTestPartResult(const ::testing::TestPartResult &result) override
    {
        if (result.failed()) {
            std::fprintf(stderr, "%s:%d: child: %s\n", result.file_name(),
                         result.line_number(), result.message());
        }
    }
};

child_result wait_for(pid_t pid)
{
    child_result result;
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    pollfd ended{pidfd, POLLIN, 0};
    if (poll(&ended, 1, deadline_ms) == 0) {
        result.timed_out = true;
        ::kill(pid, SIGKILL);
    }
    close(pidfd);

    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status)) {
        result.exit_code = WEXITSTATUS(status);
    } else {
        result.signal = WTERMSIG(status);
    }
    return result;
}

} // namespace

child_registration::child_registration(const char *name, int (*body)())
{
    bodies().emplace(name, body);
}

child_process::child_process(const std::string &name,
                             const child_options &options)
{
    int input[2];
    int output[2];
    make_pipe(input);
    make_pipe(output);
    input_  = input[1];
    output_ = output[0];
    error_  = make_output_file();

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error_, STDERR_FILENO);
    if (options.inherited_fd >= 0) {
        /* After the others: the number may be one of theirs, as a source. */
        posix_spawn_file_actions_adddup2(&actions, options.inherited_fd,
                                         child_fd);
    }

    std::string program        = "/proc/self/exe";
    std::string what           = argument + name;
    char *argv[]               = {program.data(), what.data(), nullptr};
    std::vector<std::string> e = make_environment(options);
    std::vector<char *> envp;
    for (std::string &entry : e) {
        envp.push_back(entry.data());
    }
    envp.push_back(nullptr);

    const int ret = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv,
                                envp.data());
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    if (ret != 0) {
        pid_ = -1;
        throw std::runtime_error("posix_spawn failed");
    }
}

child_process::~child_process()
{
    if (pid_ > 0) {
        kill(SIGKILL);
        wait();
    }
    close(input_);
    close(output_);
    close(error_);
}

std::string child_process::read_line()
{
    std::string line;
    for (;;) {
        pollfd ready{output_, POLLIN, 0};
        char letter = 0;
        if ((poll(&ready, 1, deadline_ms) != 1) ||
            (read(output_, &letter, 1) != 1)) {
            return {};
        }
        if (letter == '\n') {
            return line;
        }
        line += letter;
    }
}

void child_process::write_line(const std::string &line) const
{
    const std::string text = line + "\n";
    if (write(input_, text.data(), text.size()) < 0) {
        std::perror("writing to a child");
    }
}

void child_process::kill(int signal) const
{
    /* -1 would be every process of the machine. */
    if (pid_ > 0) {
        ::kill(pid_, signal);
    }
}

void child_process::stop() const
{
    siginfo_t stopped;
    kill(SIGSTOP);
    if (waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED) != 0) {
        std::perror("waitid");
        std::abort();
    }
}

bool child_process::is_killed() const
{
    siginfo_t end{};
    return (waitid(P_PID, static_cast<id_t>(pid_), &end,
                   WEXITED | WNOHANG | WNOWAIT) == 0) &&
           (end.si_pid == pid_) && (end.si_status == SIGKILL);
}

child_result child_process::wait()
{
    child_result result = wait_for(pid_);
    pid_                = -1;
    result.error        = read_output_file(error_);
    return result;
}

child_result run_child(const std::string &name, const child_options &options)
{
    return child_process(name, options).wait();
}

::testing::AssertionResult child_passes(const std::string &name,
                                        const child_options &options)
{
    const child_result result = run_child(name, options);
    if (result.exit_code == 0) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << name << " ended with " << ::testing::PrintToString(result);
}

void PrintTo(const child_result &result, std::ostream *out)
{
    *out << "exit code " << result.exit_code << ", signal " << result.signal
         << (result.timed_out ? ", after the deadline" : "") << ":\n"
         << result.error;
}

std::vector<std::string> lines_with(const std::string &text,
                                    const std::string &part)
{
    std::vector<std::string> result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find(part) != std::string::npos) {
            result.push_back(line);
        }
    }
    return result;
}

forked_process::forked_process(const std::function<int()> &body) : pid_(fork())
{
    if (pid_ < 0) {
        throw std::runtime_error("fork failed");
    }
    if (pid_ == 0) {
        alarm(lifetime_s);
        _exit(body());
    }
}

forked_process::~forked_process()
{
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        wait();
    }
}

child_result forked_process::wait()
{
    child_result result = wait_for(pid_);
    pid_                = -1;
    return result;
}

void tell_parent(const std::string &line)
{
    std::puts(line.c_str());
    std::fflush(stdout);
}

void wait_for_parent()
{
    char letter = 0;
    while ((read(STDIN_FILENO, &letter, 1) == 1) && (letter != '\n')) {}
}

bool is_child(int argc, char **argv)
{
    return (argc == 2) && std::string(argv[1]).starts_with(argument);
}

int run_as_child(char **argv)
{
    /* Do not outlive the test, and die without a trace where death is due. */
    const rlimit no_core{0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(lifetime_s);
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);

    if ((std::getenv(pod_variable) != nullptr) && !enter_pod()) {
        std::perror("becoming a pod");
        return 126;
    }
    const auto found = bodies().find(argv[1] + std::strlen(argument));
    if (found == bodies().end()) {
        std::fprintf(stderr, "no child %s\n", argv[1]);
        return 126;
    }
    auto &all       = *::testing::UnitTest::GetInstance();
    auto &listeners = all.listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new failures_on_stderr);
    const int code = found->second();
    return ((code == 0) && all.Failed()) ? 1 : code;
}

} // namespace gaudi::test
