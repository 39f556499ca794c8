#include "uct/gaudi/ipc/file_service.h"

#include "hlthunk_shim/background_thread.h"
#include "uct/gaudi/base/process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

constexpr uint64_t request_magic = 0x6c69662d69647561; /* "audi-fil" */

struct request {
    uint64_t magic;
    uint64_t number; /* comes back in the reply */
    file_ref file;
    uint32_t version;
    uint32_t reserved; /* 0 */
};
static_assert(sizeof(request) == 48);

struct reply {
    uint64_t number;
    int32_t status; /* ucs_status_t; with UCS_OK a descriptor comes along */
    uint32_t anew;  /* the file was opened anew */
};
static_assert(sizeof(reply) == 16);

/* A message of known size, with the credentials of who sent it, and maybe a
 * descriptor. */
class datagram {
public:
    datagram(void *data, size_t length) : data_{data, length}
    {
        header_.msg_iov    = &data_;
        header_.msg_iovlen = 1;
    }
    datagram(const datagram &)            = delete;
    datagram &operator=(const datagram &) = delete;

    /* The kernel checks that these are ours. */
    void add_credentials()
    {
        const ucred own{getpid(), geteuid(), getegid()};
        add(SCM_CREDENTIALS, &own, sizeof(own));
    }

    void add_descriptor(int fd) { add(SCM_RIGHTS, &fd, sizeof(fd)); }

    void set_peer(const sockaddr_un &name, socklen_t length)
    {
        peer_               = name;
        header_.msg_name    = &peer_;
        header_.msg_namelen = length;
    }

    bool send(int socket)
    {
        return sendmsg(socket, &header_, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    }

    /* @param with_descriptor  Else the kernel drops descriptors.
     * @return Bytes that came, all of them if more than fit; negative: none. */
    ssize_t receive(int socket, bool with_descriptor)
    {
        header_.msg_name    = &peer_;
        header_.msg_namelen = sizeof(peer_);
        header_.msg_control = control_;
        header_.msg_controllen =
            CMSG_SPACE(sizeof(ucred)) +
            (with_descriptor ? CMSG_SPACE(sizeof(int)) : 0);
        ssize_t length;
        do {
            length = recvmsg(socket, &header_, MSG_TRUNC | MSG_CMSG_CLOEXEC);
        } while ((length < 0) && (errno == EINTR));
        if (length >= 0) {
            parse();
        }
        return length;
    }

    /* Of what was received. */
    [[nodiscard]] const ucred &credentials() const { return credentials_; }
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] const sockaddr_un &peer() const { return peer_; }
    [[nodiscard]] socklen_t peer_length() const { return header_.msg_namelen; }

private:
    void add(int type, const void *what, size_t length)
    {
        auto *part =
            reinterpret_cast<cmsghdr *>(control_ + header_.msg_controllen);
        header_.msg_control = control_;
        header_.msg_controllen += CMSG_SPACE(length);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type  = type;
        part->cmsg_len   = CMSG_LEN(length);
        std::memcpy(CMSG_DATA(part), what, length);
    }

    void parse()
    {
        for (cmsghdr *part = CMSG_FIRSTHDR(&header_); part != nullptr;
             part          = CMSG_NXTHDR(&header_, part)) {
            if ((part->cmsg_level == SOL_SOCKET) &&
                (part->cmsg_type == SCM_CREDENTIALS) &&
                (part->cmsg_len == CMSG_LEN(sizeof(ucred)))) {
                std::memcpy(&credentials_, CMSG_DATA(part), sizeof(ucred));
            } else if ((part->cmsg_level == SOL_SOCKET) &&
                       (part->cmsg_type == SCM_RIGHTS)) {
                take_descriptors(*part);
            }
        }
    }

    /* There may be room for more than the one that belongs there. */
    void take_descriptors(cmsghdr &part)
    {
        for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part.cmsg_len;
             at += sizeof(int)) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(&part) + at, sizeof(fd));
            if (descriptor_ < 0) {
                descriptor_ = fd;
            } else {
                close(fd);
            }
        }
    }

    iovec data_;
    msghdr header_{};
    alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(ucred)) +
                                   CMSG_SPACE(sizeof(int))]{};
    sockaddr_un peer_{};
    ucred credentials_{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    int descriptor_ = -1;
};

/* The abstract name of a process's service. */
socklen_t service_name(uint64_t nonce, sockaddr_un &name_p)
{
    name_p            = {};
    name_p.sun_family = AF_UNIX;
    const int length  = std::snprintf(
         name_p.sun_path + 1, sizeof(name_p.sun_path) - 1,
         "ucx-gaudi-ipc/%016lx", static_cast<unsigned long>(nonce));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<size_t>(length));
}

/* @return A socket that says who sends to it; negative: errno tells. */
int open_socket(const sockaddr_un *name, socklen_t length, int flags)
{
    constexpr int on = 1;
    const int fd     = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) {
        return fd;
    }
    if ((setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) ||
        (bind(fd, reinterpret_cast<const sockaddr *>(name), length) != 0)) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* With a name that the kernel chooses: answers go there. */
int open_client()
{
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    return open_socket(&any, sizeof(any.sun_family), SOCK_NONBLOCK);
}

std::atomic<void (*)()> withdrawal_handler{nullptr};

class server {
public:
    explicit server(unsigned generation) : generation_(generation) {}

    static server &instance();

    ucs_status_t add(const file_ref &file, reopen_function reopen)
    {
        std::lock_guard<std::mutex> guard(lock_);
        files_[file] = reopen;
        return start();
    }

    void remove(const file_ref &file)
    {
        std::lock_guard<std::mutex> guard(lock_);
        files_.erase(file);
    }

    ucs_status_t look_up(const file_ref &file, int &fd_p, bool &anew_p)
    {
        reopen_function reopen = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock_);
            const auto found = files_.find(file);
            if (found == files_.end()) {
                return UCS_ERR_NO_ELEM;
            }
            reopen = found->second;
        }
        /* A duplicate is looked at: the number may change its meaning any time.
         */
        const int fd = fcntl(static_cast<int>(file.fd), F_DUPFD_CLOEXEC, 0);
        if ((fd < 0) && (errno == EMFILE)) {
            return UCS_ERR_NO_RESOURCE;
        }
        anew_p = (fd < 0) || !is_file(fd, file);
        if (!anew_p) {
            fd_p = fd;
            return UCS_OK;
        }
        if (fd >= 0) {
            close(fd);
        }
        return (reopen != nullptr) ? reopen(file, fd_p) : UCS_ERR_NO_ELEM;
    }

private:
    ucs_status_t start()
    {
        if (socket_ >= 0) {
            return UCS_OK;
        }
        sockaddr_un name;
        const socklen_t length = service_name(own_process().nonce, name);
        const int fd           = open_socket(&name, length, 0);
        if (fd < 0) {
            ucs_debug("gaudi_ipc: no service for files: %m");
            return UCS_ERR_IO_ERROR;
        }
        try {
            shim::start_background_thread("ucx-gaudi-files",
                                          [this, fd] { run(fd); });
        } catch (const std::system_error &error) {
            ucs_debug("gaudi_ipc: no service for files: %s", error.what());
            close(fd);
            return UCS_ERR_NO_RESOURCE;
        }
        socket_ = fd;
        return UCS_OK;
    }

    /* Until the process ends. */
    void run(int socket)
    {
        for (;;) {
            request wanted{};
            datagram message(&wanted, sizeof(wanted));
            const ssize_t length = message.receive(socket, false);
            if (length < 0) {
                ucs_debug("gaudi_ipc: the service for files ends: %m");
                return;
            }
            if ((static_cast<size_t>(length) == sizeof(wanted)) &&
                (wanted.magic == request_magic) &&
                (wanted.version == wire_version) &&
                (message.credentials().uid == geteuid())) {
                react(socket, wanted, message);
            }
        }
    }

    void react(int socket, const request &wanted, const datagram &asked)
    {
        if (wanted.file.kind != file_kind::withdrawal) {
            answer(socket, wanted, asked);
        } else if (const auto handler = withdrawal_handler.load()) {
            handler();
        }
    }

    /* A reply that does not fit is lost: who asks so much waits in vain. */
    void answer(int socket, const request &wanted, const datagram &asked)
    {
        int fd    = -1;
        bool anew = false;
        reply what{wanted.number, look_up(wanted.file, fd, anew), anew};
        datagram message(&what, sizeof(what));
        message.set_peer(asked.peer(), asked.peer_length());
        message.add_credentials();
        if (what.status == UCS_OK) {
            what.anew = anew;
            message.add_descriptor(fd);
        }
        if (!message.send(socket)) {
            ucs_debug("gaudi_ipc: process %d gets no answer: %m",
                      asked.credentials().pid);
        }
        if (fd >= 0) {
            close(fd);
        }
    }

    const unsigned generation_;
    std::mutex lock_; /* leaf */
    std::map<file_ref, reopen_function> files_;
    int socket_ = -1;
};

/* Never destroyed: its thread runs until the process ends. A forked child
 * starts anew, and keeps nothing of its parent's: while it had the socket, the
 * name would stay taken. */
server &server::instance()
{
    static std::atomic<server *> current{nullptr};

    const unsigned generation = base::process_generation();
    server *known             = current.load(std::memory_order_acquire);
    if ((known == nullptr) || (known->generation_ != generation)) {
        const int inherited = (known != nullptr) ? known->socket_ : -1;
        auto fresh          = std::make_unique<server>(generation);
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
            if (inherited >= 0) {
                close(inherited);
            }
        }
    }
    return *known;
}

using clock = std::chrono::steady_clock;

/* Wait until a socket is ready, the process has ended, or the time is over. */
ucs_status_t wait_for(int socket, short events, int pidfd,
                      clock::time_point deadline)
{
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - clock::now());
        pollfd wanted[] = {{socket, events, 0}, {pidfd, POLLIN, 0}};
        const int count =
            poll(wanted, 2, static_cast<int>(std::max<long>(left.count(), 0)));
        if ((count < 0) && (errno == EINTR)) {
            continue;
        }
        if (count < 0) {
            return UCS_ERR_NO_RESOURCE;
        }
        if (wanted[0].revents != 0) {
            return UCS_OK;
        }
        return (count == 0) ? UCS_ERR_TIMED_OUT : UCS_ERR_UNREACHABLE;
    }
}

ucs_status_t exchange(int socket, const process_id &process, int pidfd,
                      const file_ref &file, clock::time_point deadline,
                      int &fd_p, bool &anew_p)
{
    sockaddr_un name;
    const socklen_t length = service_name(process.nonce, name);
    /* Once connected it receives from there only. */
    if (connect(socket, reinterpret_cast<const sockaddr *>(&name), length) !=
        0) {
        ucs_debug("gaudi_ipc: process %u has no service for files: %m",
                  process.pid);
        return UCS_ERR_UNREACHABLE;
    }

    request wanted{request_magic, base::process_identity(), file, wire_version,
                   0};
    datagram question(&wanted, sizeof(wanted));
    question.add_credentials();
    while (!question.send(socket)) {
        if ((errno != EAGAIN) && (errno != EINTR)) {
            return UCS_ERR_UNREACHABLE;
        }
        const ucs_status_t status = wait_for(socket, POLLOUT, pidfd, deadline);
        if (status != UCS_OK) {
            return status;
        }
    }

    for (;;) {
        ucs_status_t status = wait_for(socket, POLLIN, pidfd, deadline);
        if (status != UCS_OK) {
            return status;
        }
        reply what{};
        datagram message(&what, sizeof(what));
        const ssize_t received = message.receive(socket, true);
        if ((received < 0) && (errno == EAGAIN)) {
            continue;
        }
        if ((received == sizeof(what)) && (what.number == wanted.number) &&
            (message.credentials().uid == geteuid()) &&
            (message.credentials().pid == static_cast<pid_t>(process.pid))) {
            status = static_cast<ucs_status_t>(what.status);
            if ((status == UCS_OK) && (message.descriptor() >= 0)) {
                fd_p   = message.descriptor();
                anew_p = (what.anew != 0);
                return UCS_OK;
            }
            if (message.descriptor() >= 0) {
                close(message.descriptor());
            }
            /* Without the descriptor: there was no room for it here. */
            return (status == UCS_OK)          ? UCS_ERR_NO_RESOURCE
                   : UCS_STATUS_IS_ERR(status) ? status
                                               : UCS_ERR_UNREACHABLE;
        }
        if (message.descriptor() >= 0) {
            close(message.descriptor());
        }
        if (received < 0) {
            return UCS_ERR_UNREACHABLE;
        }
    }
}

} // namespace

ucs_status_t file_service::add(const file_ref &file, reopen_function reopen)
{
    return server::instance().add(file, reopen);
}

void file_service::remove(const file_ref &file)
{
    server::instance().remove(file);
}

ucs_status_t file_service::look_up(const file_ref &file, int &fd_p,
                                   bool &anew_p)
{
    return server::instance().look_up(file, fd_p, anew_p);
}

void file_service::on_withdrawal(void (*handler)())
{
    withdrawal_handler.store(handler);
}

void file_service::tell_withdrawal(const process_id &process)
{
    const int socket = open_client();
    if (socket < 0) {
        return;
    }
    sockaddr_un name;
    const socklen_t length = service_name(process.nonce, name);
    request told{request_magic, base::process_identity(), {}, wire_version, 0};
    told.file.kind = file_kind::withdrawal;
    datagram message(&told, sizeof(told));
    message.set_peer(name, length);
    message.add_credentials();
    if (!message.send(socket)) {
        ucs_debug("gaudi_ipc: process %u does not hear of a withdrawal: %m",
                  process.pid);
    }
    close(socket);
}

ucs_status_t file_service::ask(const process_id &process, int pidfd,
                               const file_ref &file, int timeout_ms, int &fd_p,
                               bool &anew_p)
{
    const clock::time_point deadline =
        clock::now() + std::chrono::milliseconds(timeout_ms);
    const int socket = open_client();
    if (socket < 0) {
        ucs_debug("gaudi_ipc: cannot ask process %u for a file: %m",
                  process.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    const ucs_status_t status =
        exchange(socket, process, pidfd, file, deadline, fd_p, anew_p);
    close(socket);
    return status;
}

} // namespace gaudi::ipc
