#include "uct/gaudi/ipc/process/file_request.h"

#include "uct/gaudi/ipc/process/datagram.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

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

} // namespace

ucs_status_t file_request::find_service(const process_id &process)
{
    if (!can_be_looked_at()) {
        ucs_debug("gaudi_ipc: process %u cannot see the namespaces of this "
                  "one",
                  process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    util::unique_fd socket;
    const ucs_status_t status = connect_to_service(process, socket);
    return (status == UCS_ERR_REJECTED) ? UCS_ERR_UNREACHABLE : status;
}

ucs_status_t file_request::start(const process_id &process,
                                 const file_ref &file, int timeout_ms)
{
    const ucs_status_t status = connect_to_service(process, socket_);
    process_                  = process;
    file_                     = file;
    number_                   = util::process_identity();
    deadline_ = clock::now() + std::chrono::milliseconds(timeout_ms);
    sent_     = false;
    return status;
}

ucs_status_t file_request::progress(util::unique_fd &fd_p, bool &anew_p)
{
    ucs_status_t status = sent_ ? UCS_OK : send();
    if (status == UCS_OK) {
        status = receive(fd_p, anew_p);
    }
    if ((status == UCS_INPROGRESS) && (clock::now() >= deadline_)) {
        status = UCS_ERR_TIMED_OUT;
    }
    if (status != UCS_INPROGRESS) {
        socket_.reset();
    }
    return status;
}

ucs_status_t file_request::send()
{
    wire_request wanted{request_magic, number_, file_, wire_version, 0};
    datagram question(&wanted, sizeof(wanted));
    question.add_credentials();
    if (!question.send(socket_.get())) {
        return ((errno == EAGAIN) || (errno == EINTR)) ? UCS_INPROGRESS
                                                       : UCS_ERR_UNREACHABLE;
    }
    sent_ = true;
    return UCS_OK;
}

ucs_status_t file_request::receive(util::unique_fd &fd_p, bool &anew_p)
{
    for (;;) {
        wire_reply what{};
        datagram message(&what, sizeof(what));
        const ssize_t received = message.receive(socket_.get());
        if (received < 0) {
            return (errno == EAGAIN) ? UCS_INPROGRESS : UCS_ERR_UNREACHABLE;
        }
        util::unique_fd descriptor = message.take_descriptor();
        if ((received != sizeof(what)) || (what.number != number_) ||
            !is_own_user(message.credentials()) ||
            (message.credentials().pid != static_cast<pid_t>(process_.pid))) {
            continue; /* from somebody else */
        }
        const auto status = static_cast<ucs_status_t>(what.status);
        if ((status == UCS_OK) && descriptor) {
            fd_p   = std::move(descriptor);
            anew_p = (what.anew != 0);
            return UCS_OK;
        }
        /* Without the descriptor: there was no room for it here. */
        return (status == UCS_OK)          ? UCS_ERR_NO_RESOURCE
               : UCS_STATUS_IS_ERR(status) ? status
                                           : UCS_ERR_UNREACHABLE;
    }
}

void file_request::wait(int pidfd) const
{
    const short events = sent_ ? POLLIN : POLLOUT;
    pollfd wanted[]    = {{socket_.get(), events, 0}, {pidfd, POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - clock::now());
    (void)::poll(wanted, 2, static_cast<int>(std::max<long>(left.count(), 0)));
}

} // namespace gaudi::ipc
