#include "common/ability.h"

#include "common/child.h"

#include <cerrno>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* Whether it is the system that does not let us, and not a mistake of ours. */
bool is_refusal(int error)
{
    for (const int one : {EPERM, EACCES, ENOSPC, EUSERS, ENOSYS}) {
        if (error == one) {
            return true;
        }
    }
    return false;
}

/* What a child tries, step by step, until one is refused. */
class attempt {
public:
    explicit attempt(int report) : report_(report) {}

    /* @return whether to go on */
    [[nodiscard]] bool step(const char *what, bool done) const
    {
        if (!done && is_refusal(errno)) {
            const std::string text =
                std::string(what) + ": " + std::strerror(errno);
            (void)!write(report_, text.data(), text.size());
        }
        return done;
    }

private:
    int report_;
};

std::string try_in_child(const std::function<void(const attempt &)> &steps)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return {};
    }
    forked_process child([&] {
        steps(attempt(ends[1]));
        return 0;
    });
    close(ends[1]);
    std::string why;
    char part[256];
    ssize_t count;
    while ((count = read(ends[0], part, sizeof(part))) > 0) {
        why.append(part, static_cast<size_t>(count));
    }
    close(ends[0]);
    EXPECT_EQ(0, child.wait().exit_code);
    return why;
}

/* Closes without a change of errno. */
struct opened {
    explicit opened(int number) : fd(number) {}
    ~opened()
    {
        const int error = errno;
        close(fd);
        errno = error;
    }
    opened(const opened &)            = delete;
    opened &operator=(const opened &) = delete;
    const int fd;
};

bool write_file(const char *path, const std::string &text)
{
    const opened file(open(path, O_WRONLY | O_CLOEXEC));
    return (file.fd >= 0) && (write(file.fd, text.data(), text.size()) ==
                              static_cast<ssize_t>(text.size()));
}

bool become_root_in_namespace(unsigned user, unsigned group)
{
    return write_file("/proc/self/setgroups", "deny") &&
           write_file("/proc/self/uid_map",
                      "0 " + std::to_string(user) + " 1") &&
           write_file("/proc/self/gid_map",
                      "0 " + std::to_string(group) + " 1");
}

bool start_loopback()
{
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    const opened any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return (any.fd >= 0) && (ioctl(any.fd, SIOCSIFFLAGS, &request) == 0);
}

bool enter_again(const char *path)
{
    const opened space(open(path, O_RDONLY | O_CLOEXEC));
    return (space.fd >= 0) && (setns(space.fd, 0) == 0);
}

bool mount_over(const std::string &filesystem)
{
    const std::string place = (filesystem == "proc") ? "/proc" : "/sys";
    return (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) &&
           (mount("none", place.c_str(), filesystem.c_str(),
                  MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0);
}

/* A PID namespace begins with the next child. */
void in_next_child(const std::function<void()> &body)
{
    const pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    if (pid > 0) {
        waitpid(pid, nullptr, 0);
    }
}

} // namespace

std::string why_no_namespaces(int flags, const char *filesystem)
{
    return try_in_child([=](const attempt &tried) {
        const unsigned user  = geteuid();
        const unsigned group = getegid();
        if (!tried.step("unshare", unshare(flags) == 0) ||
            (((flags & CLONE_NEWUSER) != 0) &&
             !tried.step("mapping users",
                         become_root_in_namespace(user, group))) ||
            (((flags & CLONE_NEWNET) != 0) &&
             !tried.step("changing the network", start_loopback())) ||
            (((flags & CLONE_NEWNS) != 0) &&
             !tried.step("setns", enter_again("/proc/self/ns/mnt")))) {
            return;
        }
        if (filesystem != nullptr) {
            in_next_child(
                [&] { (void)tried.step("mount", mount_over(filesystem)); });
        }
    });
}

std::string why_no_fewer_rights()
{
    return try_in_child([](const attempt &tried) {
        (void)tried.step("PR_CAPBSET_DROP",
                         prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE) == 0);
    });
}

std::string why_no_other_user()
{
    return try_in_child([](const attempt &tried) {
        constexpr unsigned nobody = 65534;
        (void)(tried.step("setresgid",
                          setresgid(nobody, nobody, nobody) == 0) &&
               tried.step("setresuid", setresuid(nobody, nobody, nobody) == 0));
    });
}

} // namespace gaudi::test
