#include "uct/gaudi/ipc/process/remote_process.h"

#include "uct/gaudi/ipc/process/file_service.h"
#include "util/errors.h"
#include "util/other_process.h"
#include "util/per_process.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

std::atomic<int> timeout_ms{1000};
std::atomic<bool> getfd_refused{false};

/* Those that somebody uses. */
struct process_table {
    std::mutex lock; /* leaf */
    std::map<process_id, std::weak_ptr<remote_process>> processes;
};

ucs_status_t status_of(int error)
{
    return util::may_pass(error) ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNREACHABLE;
}

int get_descriptor(int pidfd, uint32_t fd)
{
    if (getfd_refused.load(std::memory_order_relaxed)) {
        errno = EPERM;
        return -1;
    }
    return static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
}

} // namespace

remote_process::remote_process(const process_id &id, util::unique_fd pidfd)
    : id_(id), pidfd_(std::move(pidfd)),
      generation_(util::process_generation()), self_(id == own_process()),
      memory_(static_cast<pid_t>(id.pid), pidfd_.get())
{}

ucs_status_t remote_process::open(const process_id &id,
                                  std::shared_ptr<remote_process> &process_p)
{
    process_table &table = util::of_this_process<process_table>();
    std::lock_guard<std::mutex> guard(table.lock);

    std::weak_ptr<remote_process> &known = table.processes[id];
    if (std::shared_ptr<remote_process> live = known.lock()) {
        process_p = std::move(live);
        return UCS_OK;
    }
    std::erase_if(table.processes, [&id](const auto &entry) {
        return entry.second.expired() && (entry.first != id);
    });

    /* The start time is the one of the process behind the pidfd only if that
     * one has not ended until it was read. */
    util::unique_fd pidfd = util::open_pidfd(id.pid);
    if (!pidfd) {
        const int error = errno;
        ucs_debug("gaudi_ipc: process %u cannot be opened: %s", id.pid,
                  std::strerror(error));
        return status_of(error);
    }
    std::shared_ptr<remote_process> fresh(
        new remote_process(id, std::move(pidfd)));
    const uint64_t start_time = util::process_start_time(id.pid);
    if (start_time == util::unknown_start_time) {
        ucs_debug("gaudi_ipc: process %u cannot be looked at: there is no room "
                  "for file descriptors",
                  id.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    if ((start_time != id.start_time) || !fresh->is_alive() ||
        (!fresh->is_self() && (id.pid == own_process().pid))) {
        ucs_debug("gaudi_ipc: process %u started at %lu: it is not the one "
                  "that started at %lu",
                  id.pid, start_time, id.start_time);
        return UCS_ERR_UNREACHABLE;
    }
    known     = fresh;
    process_p = std::move(fresh);
    return UCS_OK;
}

bool remote_process::is_self() const
{
    return self_ && (generation_ == util::process_generation());
}

bool remote_process::is_alive() const
{
    return !util::has_ended(pidfd_.get());
}

/* With the rights that the kernel knows of. UCS_ERR_REJECTED: it refuses, or
 * the descriptor stands for something else. */
ucs_status_t remote_process::take_file(const file_ref &file,
                                       util::unique_fd &fd_p) const
{
    util::unique_fd fd(
        is_self() ? fcntl(static_cast<int>(file.fd), F_DUPFD_CLOEXEC, 0)
                  : get_descriptor(pidfd_.get(), file.fd));
    if (!fd) {
        const int error = errno;
        ucs_debug("gaudi_ipc: cannot get descriptor %u of process %u: %s",
                  file.fd, id_.pid, std::strerror(error));
        return ((error == ESRCH) || (status_of(error) == UCS_ERR_NO_RESOURCE))
                   ? status_of(error)
                   : UCS_ERR_REJECTED;
    }
    if (!is_file(fd.get(), file)) {
        ucs_debug("gaudi_ipc: descriptor %u of process %u is another file by "
                  "now",
                  file.fd, id_.pid);
        return UCS_ERR_REJECTED;
    }
    fd_p = std::move(fd);
    return UCS_OK;
}

ucs_status_t remote_process::try_file(const file_ref &file,
                                      file_request &request,
                                      util::unique_fd &fd_p) const
{
    if (generation_ != util::process_generation()) {
        return UCS_ERR_UNREACHABLE;
    }
    ucs_status_t status = UCS_OK;
    util::unique_fd answer;
    bool anew = false;
    if (!request.is_under_way()) {
        status = take_file(file, fd_p);
        if (status != UCS_ERR_REJECTED) {
            return status;
        }
        status = is_self() ? file_service::look_up(file, answer, anew)
                           : request.start(id_, file, timeout_ms.load());
    }
    if (request.is_under_way()) {
        status = request.progress(answer, anew);
    }
    if ((status == UCS_INPROGRESS) && is_alive()) {
        return UCS_INPROGRESS;
    }
    if (status == UCS_INPROGRESS) {
        status = UCS_ERR_UNREACHABLE;
    }
    if (status != UCS_OK) {
        ucs_debug("gaudi_ipc: process %u does not hand out descriptor %u: %s",
                  id_.pid, file.fd, ucs_status_string(status));
        return status;
    }
    if (!anew && !is_file(answer.get(), file)) {
        ucs_debug("gaudi_ipc: process %u hands out another file for "
                  "descriptor %u",
                  id_.pid, file.fd);
        return UCS_ERR_NO_ELEM;
    }
    fd_p = std::move(answer);
    return UCS_OK;
}

ucs_status_t remote_process::get_file(const file_ref &file,
                                      util::unique_fd &fd_p) const
{
    file_request request;
    ucs_status_t status;
    while ((status = try_file(file, request, fd_p)) == UCS_INPROGRESS) {
        request.wait(pidfd_.get());
    }
    return (status == UCS_ERR_REJECTED) ? UCS_ERR_UNREACHABLE : status;
}

ucs_status_t remote_process::probe_file(const file_ref &file) const
{
    if (generation_ != util::process_generation()) {
        return UCS_ERR_UNREACHABLE;
    }
    util::unique_fd fd;
    ucs_status_t status = take_file(file, fd);
    if ((status == UCS_ERR_REJECTED) && is_self()) {
        bool anew;
        status = file_service::look_up(file, fd, anew);
    } else if (status == UCS_ERR_REJECTED) {
        status = file_request::find_service(id_);
    }
    return status;
}

void remote_process::set_timeout(double seconds)
{
    constexpr double longest = 3600;
    const double bounded     = (seconds < longest) ? seconds : longest;
    timeout_ms.store((bounded > 0) ? static_cast<int>(bounded * 1000) : 0);
}

void remote_process::refuse_pidfd_getfd(bool refuse)
{
    getfd_refused.store(refuse);
}

} // namespace gaudi::ipc
