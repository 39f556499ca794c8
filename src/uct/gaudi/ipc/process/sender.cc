#include "uct/gaudi/ipc/process/sender.h"

#include "util/errors.h"
#include "util/process_life.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* What the kernel says of users that are not mapped in our namespace. */
uid_t overflow_uid()
{
    static const uid_t known = [] {
        uid_t id = 65534;
        std::ifstream("/proc/sys/kernel/overflowuid") >> id;
        return id;
    }();
    return known;
}

/* @return Whether both could be looked at and are the same. */
bool is_same_namespace(pid_t pid, const char *which)
{
    const std::string end = std::string("/ns/") + which;
    struct stat theirs;
    struct stat ours;
    if ((stat(("/proc/" + std::to_string(pid) + end).c_str(), &theirs) != 0) ||
        (stat(("/proc/self" + end).c_str(), &ours) != 0)) {
        ucs_debug("gaudi_ipc: the %s namespace of process %d cannot be looked "
                  "at: %m",
                  which, pid);
        return false;
    }
    if ((theirs.st_dev != ours.st_dev) || (theirs.st_ino != ours.st_ino)) {
        ucs_debug("gaudi_ipc: process %d is in another %s namespace", pid,
                  which);
        return false;
    }
    return true;
}

} // namespace

bool is_own_user(const ucred &credentials)
{
    const uid_t own = geteuid();
    return (credentials.uid == own) && (own != overflow_uid());
}

/* Without that the kernel shows the namespaces of this process to root alone.
 */
bool can_be_looked_at()
{
    return (geteuid() == 0) || (prctl(PR_GET_DUMPABLE) == 1);
}

ucs_status_t check_namespaces(pid_t pid, int pidfd)
{
    if (pid <= 0) {
        ucs_debug("gaudi_ipc: a process of another PID namespace asks");
        return UCS_ERR_REJECTED;
    }
    util::unique_fd opened;
    if (pidfd < 0) {
        opened = util::open_pidfd(static_cast<uint32_t>(pid));
        if (!opened) {
            return util::may_pass(errno) ? UCS_ERR_NO_RESOURCE
                                         : UCS_ERR_REJECTED;
        }
        pidfd = opened.get();
    }
    /* What was looked at is of the process only if that lived to the end. */
    return (is_same_namespace(pid, "user") && is_same_namespace(pid, "pid") &&
            !util::has_ended(pidfd))
               ? UCS_OK
               : UCS_ERR_REJECTED;
}

} // namespace gaudi::ipc
