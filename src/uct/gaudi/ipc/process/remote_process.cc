#include "uct/gaudi/ipc/process/remote_process.h"

#include "uct/gaudi/ipc/process/file_service.h"
#include "util/errors.h"
#include "util/other_process.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

namespace gaudi::ipc {

namespace {

std::atomic<int> timeout_ms{1000};

/* Those that somebody uses. */
struct process_table {
    std::mutex lock; /* leaf */
    std::map<process_id, std::weak_ptr<remote_process>> processes;
};

} // namespace

remote_process::remote_process(const process_id &id, util::unique_fd pidfd)
    : id_(id), pidfd_(std::move(pidfd)), self_(id == own_process()),
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
        return util::may_pass(error) ? UCS_ERR_NO_RESOURCE
                                     : UCS_ERR_UNREACHABLE;
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

bool remote_process::is_inherited() const
{
    return made_in_.is_parent();
}

bool remote_process::is_self() const
{
    return self_ && !is_inherited();
}

bool remote_process::is_alive() const
{
    return !util::has_ended(pidfd_.get());
}

ucs_status_t remote_process::get_files(const file_ref &file, file_pair &files_p,
                                       int brought) const
{
    if (is_inherited()) {
        return UCS_ERR_UNREACHABLE;
    }
    const ucs_status_t status =
        self_ ? file_service::look_up(file, files_p)
              : file_service::ask(id_, pidfd_.get(), file, brought,
                                  timeout_ms.load(), files_p);
    if (status != UCS_OK) {
        ucs_debug("gaudi_ipc: process %u does not hand out a file: %s", id_.pid,
                  ucs_status_string(status));
    }
    return (status == UCS_ERR_REJECTED) ? UCS_ERR_UNREACHABLE : status;
}

ucs_status_t remote_process::probe_files() const
{
    return is_inherited() || !is_alive() ? UCS_ERR_UNREACHABLE
           : self_                       ? UCS_OK
                                         : file_service::probe(id_);
}

void remote_process::set_timeout(double seconds)
{
    constexpr double longest = 3600;
    const double bounded     = (seconds < longest) ? seconds : longest;
    timeout_ms.store((bounded > 0) ? static_cast<int>(bounded * 1000) : 0);
}

} // namespace gaudi::ipc
