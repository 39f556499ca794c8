/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/ability.h"

#include "common/child.h"
#include "common/descriptor.h"
#include "common/namespaces.h"
#include "util/unique_fd.h"

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
    const util::unique_fd report(make_output_file());
    forked_process child([&] {
        steps(attempt(report.get()));
        return 0;
    });
    EXPECT_EQ(0, child.wait().exit_code);
    return read_output_file(report.get());
}

bool start_loopback()
{
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    const util::unique_fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return (any.get() >= 0) && (ioctl(any.get(), SIOCSIFFLAGS, &request) == 0);
}

bool enter_again(const char *path)
{
    const util::unique_fd space(open(path, O_RDONLY | O_CLOEXEC));
    return (space.get() >= 0) && (setns(space.get(), 0) == 0);
}

bool mount_over(const std::string &filesystem)
{
    const std::string place = (filesystem == "proc") ? "/proc" : "/sys";
    return (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) &&
           (mount("none", place.c_str(), filesystem.c_str(),
                  MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0);
}

} // namespace

std::string why_no_namespaces(int flags, const char *filesystem)
{
    return try_in_child([=](const attempt &tried) {
        const unsigned user  = geteuid();
        const unsigned group = getegid();
        if (!tried.step("unshare", unshare(flags) == 0) ||
            (((flags & CLONE_NEWUSER) != 0) &&
             !tried.step("mapping users", map_user("0", user, group))) ||
            (((flags & CLONE_NEWNET) != 0) &&
             !tried.step("changing the network", start_loopback())) ||
            (((flags & CLONE_NEWNS) != 0) &&
             !tried.step("setns", enter_again("/proc/self/ns/mnt")))) {
            return;
        }
        if (filesystem != nullptr) {
            /* A PID namespace begins with the next child. */
            (void)forked_process([&] {
                (void)tried.step("mount", mount_over(filesystem));
                return 0;
            }).wait();
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
