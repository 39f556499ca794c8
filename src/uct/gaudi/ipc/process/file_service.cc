#include "uct/gaudi/ipc/process/file_service.h"

#include "util/background_thread.h"
#include "util/errors.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

using clock = std::chrono::steady_clock;

std::atomic<void (*)()> withdrawal_handler{nullptr};

/* Which file a descriptor stands for. */
struct identity {
    dev_t device = 0;
    ino_t inode  = 0;

    bool operator==(const identity &) const = default;
};

bool identify(int fd, identity &identity_p)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return false;
    }
    identity_p = {info.st_dev, info.st_ino};
    return true;
}

class server {
public:
    ucs_status_t add(file_offer offer, file_ref &file_p)
    {
        entry made{std::move(offer), {}, 0};
        file_ref file;
        if ((getrandom(&file, sizeof(file), 0) != sizeof(file)) ||
            !identify(made.offer.fds[0], made.first)) {
            return UCS_ERR_IO_ERROR;
        }
        made.secret = file.secret;
        std::lock_guard<std::mutex> guard(lock_);
        files_[file.name] = std::move(made);
        start();
        file_p = file;
        return UCS_OK;
    }

    bool remove(const file_ref &file)
    {
        std::lock_guard<std::mutex> guard(lock_);
        const auto found = files_.find(file.name);
        identity now;
        const bool is_same = (found != files_.end()) &&
                             identify(found->second.offer.fds[0], now) &&
                             (now == found->second.first);
        files_.erase(file.name);
        return is_same;
    }

    ucs_status_t look_up(const file_ref &file, file_pair &files_p)
    {
        std::lock_guard<std::mutex> guard(lock_);
        const entry *known = find(file);
        if (known == nullptr) {
            return UCS_ERR_NO_ELEM;
        }
        for (size_t i = 0; i < files_p.size(); ++i) {
            const int fd = known->offer.fds[i];
            files_p[i].reset((fd < 0) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
            if ((fd >= 0) && !files_p[i] && util::may_pass(errno)) {
                return UCS_ERR_NO_RESOURCE;
            }
        }
        /* Only a duplicate can be looked at: the program may close the
         * descriptor any time, and open something else. */
        identity now;
        if (identify(files_p[0].get(), now) && (now == known->first)) {
            return UCS_OK;
        }
        int anew = -1;
        ucs_status_t status =
            known->offer.reopen ? known->offer.reopen(anew) : UCS_ERR_NO_ELEM;
        files_p[0].reset(anew);
        return status;
    }

private:
    struct entry {
        file_offer offer;
        identity first; /* of fds[0] */
        uint64_t secret;
    };

    const entry *find(const file_ref &file) const
    {
        const auto found = files_.find(file.name);
        return ((found != files_.end()) &&
                (found->second.secret == file.secret))
                   ? &found->second
                   : nullptr;
    }

    void start()
    {
        if (socket_ >= 0) {
            return;
        }
        sockaddr_un name;
        const socklen_t length = service_name(own_process().nonce, name);
        util::unique_fd socket = open_service(name, length, sends_pidfds_);
        if (!socket) {
            ucs_diag("gaudi_ipc: no service for files: %m");
            return;
        }
        try {
            util::start_background_thread(
                "ucx-gaudi-files", [this, fd = socket.get()] { run(fd); });
        } catch (const std::system_error &error) {
            ucs_diag("gaudi_ipc: no service for files: %s", error.what());
            return;
        }
        not_in_children_ = util::closed_in_children(socket.get());
        socket_          = socket.release();
    }

    /* Until the process ends. */
    void run(int socket)
    {
        for (;;) {
            wire_request wanted{};
            datagram message(&wanted, sizeof(wanted));
            const ssize_t length = message.receive(socket);
            if (length < 0) {
                ucs_debug("gaudi_ipc: the service for files ends: %m");
                return;
            }
            if ((static_cast<size_t>(length) == sizeof(wanted)) &&
                (wanted.magic == request_magic) &&
                (wanted.version == wire_version) &&
                is_own_user(message.credentials)) {
                react(socket, wanted, message);
            }
        }
    }

    void react(int socket, const wire_request &wanted, datagram &asked)
    {
        file_pair files;
        ucs_status_t status = check_sender(wanted, asked);
        if (wanted.withdrawal != 0) {
            const auto handler = withdrawal_handler.load();
            if ((status == UCS_OK) && (handler != nullptr)) {
                handler();
            }
            return;
        }
        if (status == UCS_OK) {
            status = meet(wanted, asked);
        }
        if (status == UCS_OK) {
            status = look_up(wanted.file, files);
        }
        /* A reply that does not fit is lost: who asks so much waits in vain. */
        wire_reply what{wanted.number, status, 0};
        datagram message(&what, sizeof(what));
        message.answer(asked);
        message.add_credentials();
        for (const util::unique_fd &fd : files) {
            if ((status == UCS_OK) && fd) {
                message.add_descriptor(fd.get());
            }
        }
        if (!message.send(socket)) {
            ucs_debug("gaudi_ipc: process %d gets no answer: %m",
                      asked.credentials.pid);
        }
    }

    /* Where the kernel sends pidfds, a message without is of a process that
     * has ended, unless there was no room for one. */
    ucs_status_t check_sender(const wire_request &wanted,
                              const datagram &asked) const
    {
        if (sends_pidfds_ && (asked.pidfd < 0)) {
            return util::may_pass(-asked.pidfd) ? UCS_ERR_NO_RESOURCE
                                                : UCS_ERR_REJECTED;
        }
        const pid_t pid = asked.credentials.pid;
        return (static_cast<pid_t>(wanted.sender.pid) != pid)
                   ? UCS_ERR_REJECTED
                   : check_namespaces(pid, asked.pidfd);
    }

    /* Take what the sender has brought. */
    ucs_status_t meet(const wire_request &wanted, datagram &asked)
    {
        ucs_status_t (*take)(const process_id &, util::unique_fd) = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock_);
            const entry *known = find(wanted.file);
            take = (known == nullptr) ? nullptr : known->offer.take;
        }
        return (take == nullptr)
                   ? UCS_OK
                   : take(wanted.sender, std::move(asked.descriptors[0]));
    }

    std::mutex lock_; /* held across reopening */
    std::unordered_map<uint64_t, entry> files_;
    int socket_        = -1;
    bool sends_pidfds_ = false; /* the socket; before the thread starts */
    /* While a child had it, the name would stay taken. */
    util::closed_in_children not_in_children_;
};

/* Once connected a socket receives from there only. */
ucs_status_t connect_to_service(const process_id &process,
                                util::unique_fd &socket_p)
{
    if (!is_own_user({0, geteuid(), 0})) {
        ucs_debug("gaudi_ipc: process %u cannot tell this user from others",
                  process.pid);
        return UCS_ERR_REJECTED;
    }
    util::unique_fd socket = open_client();
    if (!socket) {
        ucs_debug("gaudi_ipc: cannot ask process %u for a file: %m",
                  process.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    sockaddr_un name;
    const socklen_t length = service_name(process.nonce, name);
    if (connect(socket.get(), reinterpret_cast<const sockaddr *>(&name),
                length) != 0) {
        ucs_debug("gaudi_ipc: process %u has no service for files: %m",
                  process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    socket_p = std::move(socket);
    return UCS_OK;
}

/* Wait until a socket is ready, its process has ended, or it is too late. */
ucs_status_t wait_for(int socket, short events, int pidfd,
                      clock::time_point deadline)
{
    pollfd wanted[] = {{socket, events, 0}, {pidfd, POLLIN, 0}};
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

ucs_status_t file_service::add(file_offer offer, file_ref &file_p)
{
    return util::of_this_process<server>().add(std::move(offer), file_p);
}

bool file_service::remove(const file_ref &file)
{
    return util::of_this_process<server>().remove(file);
}

ucs_status_t file_service::look_up(const file_ref &file, file_pair &files_p)
{
    return util::of_this_process<server>().look_up(file, files_p);
}

ucs_status_t file_service::ask(const process_id &process, int pidfd,
                               const file_ref &file, int brought,
                               int timeout_ms, file_pair &files_p)
{
    const clock::time_point deadline =
        clock::now() + std::chrono::milliseconds(timeout_ms);
    util::unique_fd socket;
    ucs_status_t status = connect_to_service(process, socket);

    wire_request wanted{
        request_magic, util::process_identity(), own_process(), file, 0,
        wire_version};
    datagram question(&wanted, sizeof(wanted));
    question.add_credentials();
    if (brought >= 0) {
        question.add_descriptor(brought);
    }
    while ((status == UCS_OK) && !question.send(socket.get())) {
        status = (errno == EAGAIN)
                     ? wait_for(socket.get(), POLLOUT, pidfd, deadline)
                     : UCS_ERR_UNREACHABLE;
    }
    while (status == UCS_OK) {
        wire_reply what{};
        datagram answer(&what, sizeof(what));
        const ssize_t length = answer.receive(socket.get());
        if (length < 0) {
            status = (errno == EAGAIN)
                         ? wait_for(socket.get(), POLLIN, pidfd, deadline)
                         : UCS_ERR_UNREACHABLE;
            continue;
        }
        if ((length != sizeof(what)) || (what.number != wanted.number) ||
            !is_own_user(answer.credentials) ||
            (answer.credentials.pid != static_cast<pid_t>(process.pid))) {
            continue; /* from somebody else */
        }
        status = static_cast<ucs_status_t>(what.status);
        if (status == UCS_OK) {
            files_p = std::move(answer.descriptors);
            /* Without: there was no room for it here. */
            status = files_p[0] ? UCS_OK : UCS_ERR_NO_RESOURCE;
            break;
        }
        status = UCS_STATUS_IS_ERR(status) ? status : UCS_ERR_UNREACHABLE;
    }
    return status;
}

ucs_status_t file_service::probe(const process_id &process)
{
    util::unique_fd socket;
    const ucs_status_t status = connect_to_service(process, socket);
    return (status == UCS_ERR_REJECTED) ? UCS_ERR_UNREACHABLE : status;
}

void file_service::on_withdrawal(void (*handler)())
{
    withdrawal_handler.store(handler);
}

void file_service::tell_withdrawal(const process_id &process)
{
    const util::unique_fd socket = open_client();
    if (!socket) {
        return;
    }
    sockaddr_un name;
    const socklen_t length = service_name(process.nonce, name);
    wire_request told{request_magic, 0, own_process(), {}, 1, wire_version};
    datagram message(&told, sizeof(told));
    message.set_peer(name, length);
    message.add_credentials();
    if (!message.send(socket.get())) {
        ucs_debug("gaudi_ipc: process %u does not hear of a withdrawal: %m",
                  process.pid);
    }
}

} // namespace gaudi::ipc
