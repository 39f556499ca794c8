/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel_double/rules.h"

#include "kernel_double/kernel.h"
#include "util/fork_handlers.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::kernel_double {

namespace {

util::child_mutex lock;

std::set<std::string> &reported()
{
    static auto *result = new std::set<std::string>;
    return *result;
}

std::string command_line()
{
    std::string text;
    char part[512];
    const int fd        = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t count = (fd >= 0) ? read(fd, part, sizeof(part)) : 0;
    if (count > 0) {
        text.assign(part, static_cast<size_t>(count));
    }
    if (fd >= 0) {
        close(fd);
    }
    for (char &letter : text) {
        letter = (letter < ' ') ? ' ' : letter;
    }
    return text;
}

void write_report(const std::string &line)
{
    const char *path = std::getenv("KERNEL_DOUBLE_REPORT");
    const int fd =
        (path != nullptr)
            ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)
            : STDERR_FILENO;
    /* One call, so that lines of several processes stay whole. */
    if ((fd < 0) || (write(fd, line.data(), line.size()) < 0)) {
        std::abort(); /* it must not go unseen */
    }
    if (fd != STDERR_FILENO) {
        close(fd);
    }
}

} // namespace

void report(const char *rule, const char *what)
{
    const own_call own;
    const std::lock_guard<util::child_mutex> guard(lock);
    if (reported().insert(rule).second) {
        write_report("kernel-double: " + std::string(rule) + ": " + what +
                     " [" + command_line() + "]\n");
    }
}

} // namespace gaudi::kernel_double
