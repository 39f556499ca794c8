/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/remote_process.h"

#include "uct/gaudi/ipc/process/shared_folder.h"
#include "util/errors.h"
#include "util/other_process.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include <poll.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

using clock = std::chrono::steady_clock;

std::atomic<int> answer_ms{10000};

/* Those that somebody uses. */
struct process_table {
    std::mutex lock; /* leaf */
    std::map<process_id, std::weak_ptr<remote_process>> processes;
};

/* Whether pids of a process mean the same here. */
bool is_near(const process_id &id)
{
    return id.pid_namespace == own_process().pid_namespace;
}

/* Wait until a socket is ready, its process has ended, or it is too late. */
ucs_status_t wait_for(int socket, short events, int life,
                      clock::time_point deadline)
{
    pollfd wanted[] = {{socket, events, 0}, {life, POLLIN, 0}};
    int count;
    do {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - clock::now());
        count = ::poll(wanted, 2, std::max(static_cast<int>(left.count()), 0));
    } while ((count < 0) && (errno == EINTR));
    return (count == 0)               ? UCS_ERR_TIMED_OUT
           : (wanted[0].revents != 0) ? UCS_OK
                                      : UCS_ERR_UNREACHABLE;
}

} // namespace

/* Of another PID namespace the pid is nobody's here: the kernel knows no
 * process 0. */
remote_process::remote_process(const process_id &id, util::unique_fd life)
    : id_(id), life_(std::move(life)), self_(id == own_process()),
      memory_(is_near(id) ? static_cast<pid_t>(id.pid) : 0, life_.get())
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

    util::unique_fd life =
        is_near(id)
            ? util::open_pidfd(id.pid)
            : shared_folder::instance().open_life(folder_word(id.nonce));
    if (!life) {
        const int error = errno;
        ucs_debug("gaudi_ipc: process %u cannot be opened: %s", id.pid,
                  std::strerror(error));
        return util::may_pass(error) ? UCS_ERR_NO_RESOURCE
                                     : UCS_ERR_UNREACHABLE;
    }
    std::shared_ptr<remote_process> fresh(
        new remote_process(id, std::move(life)));
    /* The start time is the one of the process behind the pidfd only if that
     * one has not ended until it was read. */
    const uint64_t start_time =
        is_near(id) ? util::process_start_time(id.pid) : id.start_time;
    if (start_time == util::unknown_start_time) {
        ucs_debug("gaudi_ipc: process %u cannot be looked at: there is no room "
                  "for file descriptors",
                  id.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    if ((start_time != id.start_time) || !fresh->is_alive() ||
        (!fresh->is_self() && is_near(id) && (id.pid == own_process().pid))) {
        ucs_debug("gaudi_ipc: process %u started at %lu: it is not the one "
                  "that started at %lu",
                  id.pid, start_time, id.start_time);
        return UCS_ERR_UNREACHABLE;
    }
    known     = fresh;
    process_p = std::move(fresh);
    return UCS_OK;
}

bool remote_process::is_alive() const
{
    return !util::has_ended(life_.get());
}

ucs_status_t remote_process::get_files(const file_ref &file, file_pair &files_p,
                                       std::array<int, 2> brought) const
{
    const ucs_status_t status = self_ ? file_service::look_up(file, files_p)
                                      : ask(file, brought, files_p);
    if (status != UCS_OK) {
        ucs_debug("gaudi_ipc: process %u does not hand out a file: %s", id_.pid,
                  ucs_status_string(status));
    }
    return (status == UCS_ERR_REJECTED) ? UCS_ERR_UNREACHABLE : status;
}

ucs_status_t remote_process::probe_files() const
{
    util::unique_fd socket;
    return !is_alive() ? UCS_ERR_UNREACHABLE : self_ ? UCS_OK : connect(socket);
}

/* A socket to its service. */
ucs_status_t remote_process::connect(util::unique_fd &socket_p) const
{
    if (!is_own_user({0, geteuid(), 0})) {
        ucs_debug("gaudi_ipc: process %u cannot tell this user from others",
                  id_.pid);
        return UCS_ERR_UNREACHABLE;
    }
    util::unique_fd socket = open_client();
    if (!socket) {
        ucs_debug("gaudi_ipc: cannot ask process %u for a file: %m", id_.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    if (!shared_folder::instance().connect(socket.get(),
                                           folder_word(id_.nonce)) &&
        !connect_to_service(socket.get(), service_name(id_.nonce))) {
        ucs_debug("gaudi_ipc: process %u has no service for files: %m",
                  id_.pid);
        return UCS_ERR_UNREACHABLE;
    }
    socket_p = std::move(socket);
    return UCS_OK;
}

/* @return As get_files; UCS_ERR_REJECTED: it would not answer this process. */
ucs_status_t remote_process::ask(const file_ref &file,
                                 std::array<int, 2> brought,
                                 file_pair &files_p) const
{
    const clock::time_point deadline =
        clock::now() + std::chrono::milliseconds(answer_ms.load());
    util::unique_fd socket;
    ucs_status_t status = connect(socket);
    util::unique_fd theirs;
    const util::unique_fd answers = open_answers(theirs);
    if ((status == UCS_OK) && !answers) {
        return UCS_ERR_NO_RESOURCE;
    }

    wire_request wanted{request_magic, util::process_identity(),
                        own_process(), file,
                        wire_version,  0};
    datagram question(&wanted, sizeof(wanted));
    question.add_credentials();
    question.add_descriptor(theirs.get());
    for (const int fd : brought) {
        if (fd >= 0) {
            question.add_descriptor(fd);
        }
    }
    while ((status == UCS_OK) && !question.send(socket.get())) {
        status = (errno == EAGAIN)
                     ? wait_for(socket.get(), POLLOUT, life(), deadline)
                     : UCS_ERR_UNREACHABLE;
    }
    theirs.reset(); /* its end is theirs */
    while (status == UCS_OK) {
        wire_reply what{};
        datagram answer(&what, sizeof(what));
        const ssize_t length = answer.receive(answers.get());
        if (length <= 0) {
            status = ((length < 0) && (errno == EAGAIN))
                         ? wait_for(answers.get(), POLLIN, life(), deadline)
                         : UCS_ERR_UNREACHABLE;
            continue;
        }
        if ((length != sizeof(what)) || (what.number != wanted.number) ||
            !is_own_user(answer.credentials) ||
            (is_near(id_) &&
             (answer.credentials.pid != static_cast<pid_t>(id_.pid)))) {
            continue; /* from somebody else */
        }
        status = static_cast<ucs_status_t>(what.status);
        if (status == UCS_OK) {
            files_p = {std::move(answer.descriptors[0]),
                       std::move(answer.descriptors[1])};
            /* Without: there was no room for it here. */
            return files_p[0] ? UCS_OK : UCS_ERR_NO_RESOURCE;
        }
        status = UCS_STATUS_IS_ERR(status) ? status : UCS_ERR_UNREACHABLE;
    }
    return status;
}

int remote_process::timeout_ms()
{
    return answer_ms;
}

void remote_process::set_timeout(double seconds)
{
    constexpr double longest = 3600;
    const double bounded     = (seconds < longest) ? seconds : longest;
    answer_ms.store((bounded > 0) ? static_cast<int>(bounded * 1000) : 0);
}

} // namespace gaudi::ipc
