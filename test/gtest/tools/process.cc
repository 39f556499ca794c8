/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/process.h"

#include "common/descriptor.h"
#include "common/framework.h"
#include "common/scratch.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace gaudi::test {

namespace {

constexpr int inherited_number = 3;
constexpr int cannot_execute   = 125;

/* Settings of the developer's shell that would change what tests see. */
bool is_foreign_setting(const std::string &entry)
{
    for (const char *prefix :
         {"UCX_", "HLTHUNK_", "HABANA_", "GAUDI_", "HLS_",
          "LD_PRELOAD=", "LD_LIBRARY_PATH=", "XDG_CACHE_HOME="}) {
        if (entry.starts_with(prefix)) {
            return true;
        }
    }
    return false;
}

void preload_first(environment &variables, const std::string &file)
{
    std::string &list = variables["LD_PRELOAD"];
    list              = file + (list.empty() ? "" : ":" + list);
}

/* The variables of a program, and those that it needs beside its own settings,
 * since the build or the test program is a special one: the runtime of
 * AddressSanitizer for programs that are not instrumented and load libraries
 * that are, and the double of the kernel driver where the test program runs
 * above it; then the library that is tested stands for the emulator. */
environment with_needs_of_build(environment variables)
{
#ifdef __SANITIZE_ADDRESS__
    /* The launcher puts the loader in front of the runtime. That is well: it
     * has no function that the runtime wraps. Leaks are looked for in the
     * unit tests: here they are those of stock programs. */
    preload_first(variables, GAUDI_ASAN_RUNTIME);
    variables["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0";
#endif
    if (const char *library = tested_library(); library != nullptr) {
        preload_first(variables, GAUDI_BUILD_DIR "/lib/libkernel_double.so");
        const auto found = variables.find("UCX_GAUDI_DRIVER");
        if ((found != variables.end()) && (found->second == "emulator")) {
            found->second = library;
        }
    }
    return variables;
}

/* The lines of a sanitizer's report from its heading on; empty without one. */
std::string sanitizer_report([[maybe_unused]] const std::string &output)
{
#ifdef __SANITIZE_ADDRESS__
    for (const char *heading :
         {"ERROR: AddressSanitizer", ": runtime error: "}) {
        if (const size_t at = output.find(heading); at != std::string::npos) {
            return output.substr(at);
        }
    }
#endif
    return {};
}

std::vector<std::string> make_environment(const environment &variables)
{
    std::vector<std::string> result;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('='));
        if (!is_foreign_setting(text) && !variables.contains(name)) {
            result.push_back(text);
        }
    }
    for (const auto &[name, value] : variables) {
        result.push_back(name + "=" + value);
    }
    if (!variables.contains("XDG_CACHE_HOME")) {
        static const scratch_directory of_launcher;
        result.push_back("XDG_CACHE_HOME=" + of_launcher.path(""));
    }
    if (runs_beside_framework() && !variables.contains("LD_PRELOAD")) {
        result.emplace_back("LD_PRELOAD=" GAUDI_BUILD_DIR
                            "/lib/synapse/libsynapse_framework.so");
        result.emplace_back("GAUDI_TEST_FRAMEWORK=y"); /* for test programs */
    }
    for (const char *name : {"HLTHUNK_EMU_ASIC", "HLTHUNK_EMU_DRAM_PAGE"}) {
        const char *value = std::getenv(name); /* of GAUDI_TEST_SETTINGS */
        if ((value != nullptr) && !variables.contains(name)) {
            result.push_back(std::string(name) + "=" + value);
        }
    }
    return result;
}

std::vector<char *> make_pointers(std::vector<std::string> &texts)
{
    std::vector<char *> result;
    for (std::string &text : texts) {
        result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
}

int make_input_file(const std::string &contents)
{
    const int fd    = memfd_create("input", MFD_CLOEXEC);
    const auto size = static_cast<ssize_t>(contents.size());
    if ((fd < 0) || (write(fd, contents.data(), contents.size()) != size) ||
        (lseek(fd, 0, SEEK_SET) != 0)) {
        throw std::runtime_error("memfd_create failed");
    }
    return fd;
}

/* What runs between fork and exec calls nothing but the kernel. */
[[noreturn]] void execute(pid_t parent, char **argv, char **envp, int input,
                          int output, int inherited)
{
    const rlimit no_core{0, 0};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    if (getppid() == parent) {
        dup2(input, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        if (inherited == inherited_number) {
            fcntl(inherited, F_SETFD, 0);
        } else if (inherited >= 0) {
            dup2(inherited, inherited_number);
        }
        execvpe(argv[0], argv, envp);
    }
    _exit(cannot_execute);
}

} // namespace

const char *tested_library()
{
    return (std::getenv("KERNEL_DOUBLE_KERNEL") != nullptr)
               ? std::getenv("GAUDI_TEST_HLTHUNK")
               : nullptr;
}

process::process(const arguments &argv, const process_options &options)
    : deadline_(std::chrono::steady_clock::now() + options.deadline)
{
    std::vector<std::string> argument_texts = argv;
    std::vector<std::string> variable_texts =
        make_environment(with_needs_of_build(options.variables));
    const std::vector<char *> argument_pointers = make_pointers(argument_texts);
    const std::vector<char *> variable_pointers = make_pointers(variable_texts);
    const int input    = make_input_file(options.input);
    const pid_t parent = getpid();

    output_ = make_output_file();
    pid_    = fork();
    if (pid_ == 0) {
        execute(parent, const_cast<char **>(argument_pointers.data()),
                const_cast<char **>(variable_pointers.data()), input, output_,
                options.inherited_fd);
    }
    close(input);
    if (pid_ < 0) {
        throw std::runtime_error("fork failed");
    }
    setpgid(pid_, pid_); /* whoever comes first */
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    fcntl(pidfd_, F_SETFD, FD_CLOEXEC);
}

process::~process()
{
    if (pid_ > 0) {
        deadline_ = {};
        wait();
    }
    close(pidfd_);
    close(output_);
}

bool process::has_ended() const
{
    pollfd ended{pidfd_, POLLIN, 0};
    return poll(&ended, 1, 0) == 1;
}

process_result process::wait()
{
    using std::chrono::milliseconds;

    process_result result;
    int ready = 0;
    do {
        const auto left = std::chrono::duration_cast<milliseconds>(
            deadline_ - std::chrono::steady_clock::now());
        pollfd ended{pidfd_, POLLIN, 0};
        ready = poll(&ended, 1,
                     static_cast<int>(std::max<int64_t>(left.count(), 0)));
    } while ((ready < 0) && (errno == EINTR));
    result.timed_out = (ready != 1);

    /* Also what it left behind. Its number is taken until waitpid. */
    ::kill(-pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFEXITED(status)) {
        result.exit_code = WEXITSTATUS(status);
    } else {
        result.signal = WTERMSIG(status);
    }
    result.output = output();
    EXPECT_EQ("", sanitizer_report(result.output));
    return result;
}

process_result process::stop()
{
    ::kill(-pid_, SIGTERM);
    return wait();
}

std::string process::output() const
{
    return read_output_file(output_);
}

process_result run(const arguments &argv, const process_options &options)
{
    return process(argv, options).wait();
}

} // namespace gaudi::test
