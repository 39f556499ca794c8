#include "uct/gaudi/ipc/process/file_service.h"

#include "uct/gaudi/ipc/process/datagram.h"
#include "uct/gaudi/ipc/process/file_request.h"
#include "util/background_thread.h"
#include "util/errors.h"
#include "util/fork_handlers.h"
#include "util/per_process.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <tuple>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* What a file is found by. */
using file_name = std::tuple<uint64_t, uint64_t, uint32_t, file_kind>;

file_name name_of(const file_ref &file)
{
    return {file.device, file.inode, file.fd, file.kind};
}

/* In the same time, whatever is right of it. */
bool is_same(const file_token &one, const file_token &two)
{
    return ((one.high ^ two.high) | (one.low ^ two.low)) == 0;
}

std::atomic<void (*)()> withdrawal_handler{nullptr};

class server {
public:
    ucs_status_t add(const file_ref &file, reopen_function reopen)
    {
        std::lock_guard<std::mutex> guard(lock_);
        files_[name_of(file)] = {file.token, reopen};
        return start();
    }

    void remove(const file_ref &file)
    {
        std::lock_guard<std::mutex> guard(lock_);
        files_.erase(name_of(file));
    }

    ucs_status_t look_up(const file_ref &file, util::unique_fd &fd_p,
                         bool &anew_p)
    {
        reopen_function reopen = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock_);
            const auto found = files_.find(name_of(file));
            if ((found == files_.end()) ||
                !is_same(found->second.token, file.token)) {
                return UCS_ERR_NO_ELEM;
            }
            reopen = found->second.reopen;
        }
        /* A duplicate: the number may change its meaning any time. */
        util::unique_fd fd(
            fcntl(static_cast<int>(file.fd), F_DUPFD_CLOEXEC, 0));
        if (!fd && util::may_pass(errno)) {
            return UCS_ERR_NO_RESOURCE;
        }
        anew_p              = !fd || !is_file(fd.get(), file);
        ucs_status_t status = UCS_OK;
        if (anew_p) {
            fd.reset();
            int opened = -1;
            status =
                (reopen != nullptr) ? reopen(file, opened) : UCS_ERR_NO_ELEM;
            fd.reset(opened);
        }
        fd_p = std::move(fd);
        return status;
    }

private:
    struct entry {
        file_token token;
        reopen_function reopen;
    };

    ucs_status_t start()
    {
        if (socket_ >= 0) {
            return UCS_OK;
        }
        sockaddr_un name;
        const socklen_t length = service_name(own_process().nonce, name);
        util::unique_fd socket = open_service(name, length, sends_pidfds_);
        if (!socket) {
            ucs_debug("gaudi_ipc: no service for files: %m");
            return UCS_ERR_IO_ERROR;
        }
        try {
            util::start_background_thread(
                "ucx-gaudi-files", [this, fd = socket.get()] { run(fd); });
        } catch (const std::system_error &error) {
            ucs_debug("gaudi_ipc: no service for files: %s", error.what());
            return UCS_ERR_NO_RESOURCE;
        }
        not_in_children_ = util::closed_in_children(socket.get());
        socket_          = socket.release();
        return UCS_OK;
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
                is_own_user(message.credentials())) {
                react(socket, wanted, message);
            }
        }
    }

    void react(int socket, const wire_request &wanted, const datagram &asked)
    {
        const ucs_status_t status = check_sender(asked);
        if (wanted.file.kind != file_kind::withdrawal) {
            answer(socket, wanted, asked, status);
        } else if (const auto handler = withdrawal_handler.load();
                   (status == UCS_OK) && (handler != nullptr)) {
            handler();
        }
    }

    /* Where the kernel sends pidfds, a message without is of a process that
     * has ended, unless there was no room for one. */
    ucs_status_t check_sender(const datagram &asked) const
    {
        if (sends_pidfds_ && (asked.pidfd() < 0)) {
            return util::may_pass(-asked.pidfd()) ? UCS_ERR_NO_RESOURCE
                                                  : UCS_ERR_REJECTED;
        }
        return check_namespaces(asked.credentials().pid, asked.pidfd());
    }

    /* A reply that does not fit is lost: who asks so much waits in vain. */
    void answer(int socket, const wire_request &wanted, const datagram &asked,
                ucs_status_t status)
    {
        util::unique_fd fd;
        bool anew = false;
        if (status == UCS_OK) {
            status = look_up(wanted.file, fd, anew);
        }
        wire_reply what{wanted.number, status, anew};
        datagram message(&what, sizeof(what));
        message.set_peer(asked.peer(), asked.peer_length());
        message.add_credentials();
        if (status == UCS_OK) {
            message.add_descriptor(fd.get());
        }
        if (!message.send(socket)) {
            ucs_debug("gaudi_ipc: process %d gets no answer: %m",
                      asked.credentials().pid);
        }
    }

    std::mutex lock_; /* leaf */
    std::map<file_name, entry> files_;
    int socket_        = -1;
    bool sends_pidfds_ = false; /* the socket; before the thread starts */
    /* While a child had it, the name would stay taken. */
    util::closed_in_children not_in_children_;
};

} // namespace

ucs_status_t file_service::add(const file_ref &file, reopen_function reopen)
{
    return util::of_this_process<server>().add(file, reopen);
}

void file_service::remove(const file_ref &file)
{
    util::of_this_process<server>().remove(file);
}

ucs_status_t file_service::look_up(const file_ref &file, util::unique_fd &fd_p,
                                   bool &anew_p)
{
    return util::of_this_process<server>().look_up(file, fd_p, anew_p);
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
    wire_request told{
        request_magic, util::process_identity(), {}, wire_version, 0};
    told.file.kind = file_kind::withdrawal;
    datagram message(&told, sizeof(told));
    message.set_peer(name, length);
    message.add_credentials();
    if (!message.send(socket.get())) {
        ucs_debug("gaudi_ipc: process %u does not hear of a withdrawal: %m",
                  process.pid);
    }
}

} // namespace gaudi::ipc
