/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/namespaces.h"

#include "common/scratch.h"
#include "util/unique_fd.h"

#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

child_options as_pods(child_options options)
{
    static const scratch_directory folder; /* of this program */
    (void)mkdir(folder.path("cards").c_str(), 0700);
    (void)chmod(folder.path("").c_str(), 01777);
    for (const auto &[name, value] :
         {std::pair{pod_variable, std::string("y")},
          {"UCX_GAUDI_IPC_DIR", folder.path("")},
          {"HLTHUNK_EMU_NODE", folder.path("cards")}}) {
        options.environment.emplace_back(name, value);
    }
    return options;
}

bool go_on_as_child(long child)
{
    if (child > 0) {
        int status = 1;
        waitpid(static_cast<pid_t>(child), &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    return (child == 0) && (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

bool enter_namespaces(long flags)
{
    return go_on_as_child(fork()) &&
           go_on_as_child(syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr,
                                  nullptr, nullptr));
}

bool write_text(const char *path, const std::string &text)
{
    const util::unique_fd file(open(path, O_WRONLY | O_CLOEXEC));
    return write(file.get(), text.data(), text.size()) ==
           static_cast<ssize_t>(text.size());
}

bool map_user(const std::string &inside, unsigned user, unsigned group)
{
    const auto map = [&](unsigned outside) {
        return inside + " " + std::to_string(outside) + " 1";
    };
    return write_text("/proc/self/uid_map", map(user)) &&
           write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/gid_map", map(group));
}

bool enter_pod()
{
    const unsigned user  = geteuid();
    const unsigned group = getegid();
    /* After a change of users /proc/self is root's. */
    return (prctl(PR_SET_DUMPABLE, 1) == 0) &&
           enter_namespaces(pod_namespaces) &&
           map_user(std::to_string(user), user, group);
}

} // namespace gaudi::test
