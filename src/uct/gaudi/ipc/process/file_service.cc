/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/file_service.h"

#include "uct/gaudi/ipc/process/shared_folder.h"
#include "util/background_thread.h"
#include "util/errors.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

std::atomic<void (*)()> end_handler{nullptr};

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

/* The files that this process offers, and the thread that gives them. */
struct server {
    struct entry {
        file_offer offer;
        identity first; /* of fds[0] */
        uint64_t secret;
    };

    const entry *find(const file_ref &file) const
    {
        const auto found = files.find(file.name);
        return ((found != files.end()) && (found->second.secret == file.secret))
                   ? &found->second
                   : nullptr;
    }

    /* Once; under the lock. */
    void start()
    {
        if (socket >= 0) {
            return;
        }
        util::unique_fd opened =
            open_service(service_name(own_process().nonce), &sends_pidfds);
        ends.reset(epoll_create1(EPOLL_CLOEXEC));
        if (!opened || !ends) {
            ucs_diag("gaudi_ipc: no service for files: %m");
            return;
        }
        try {
            util::start_background_thread(
                "ucx-gaudi-files",
                [this, fd = opened.get(),
                 shared = shared_folder::instance().service()] {
                    run({fd, POLLIN, 0}, {shared, POLLIN, 0},
                        {ends.get(), POLLIN, 0});
                });
        } catch (const std::system_error &error) {
            ucs_diag("gaudi_ipc: no service for files: %s", error.what());
            return;
        }
        not_in_children = util::closed_in_children(opened.get());
        socket          = opened.release();
    }

    /* Until the process ends. */
    void run(pollfd near, pollfd shared, pollfd ended)
    {
        for (;;) {
            pollfd all[] = {near, shared, ended};
            (void)poll(all, 3, -1);
            if ((all[2].revents != 0) && !tell_end()) {
                ended.fd = -1; /* somebody has closed it */
            }
            for (const pollfd &from : {all[0], all[1]}) {
                wire_request wanted{};
                datagram message(&wanted, sizeof(wanted));
                const ssize_t length =
                    (from.revents != 0) ? message.receive(from.fd) : 0;
                if (length < 0) {
                    ucs_debug("gaudi_ipc: the service for files ends: %m");
                    return;
                }
                if ((static_cast<size_t>(length) == sizeof(wanted)) &&
                    (wanted.magic == request_magic) &&
                    (wanted.version == wire_version) &&
                    is_own_user(message.credentials)) {
                    react(from.fd == shared.fd, wanted, message);
                }
            }
        }
    }

    [[nodiscard]] bool tell_end() const
    {
        epoll_event end;
        const int count = epoll_wait(ends.get(), &end, 1, 0);
        if (count > 0) {
            end_handler.load()();
        }
        return count >= 0;
    }

    void react(bool by_folder, const wire_request &wanted, datagram &asked)
    {
        file_pair given;
        ucs_status_t status = by_folder ? check_sharer(wanted, asked)
                                        : check_sender(wanted, asked);
        if (status == UCS_OK) {
            status = meet(wanted, asked);
        }
        if (status == UCS_OK) {
            status = file_service::look_up(wanted.file, given);
        }
        /* Children would keep the parent from freeing its memory. */
        const util::closed_in_children own(given[0].get());
        /* A reply that does not fit is lost: who asks so much waits in vain. */
        wire_reply what{wanted.number, status, 0};
        datagram message(&what, sizeof(what));
        message.add_credentials();
        for (const util::unique_fd &fd : given) {
            if ((status == UCS_OK) && fd) {
                message.add_descriptor(fd.get());
            }
        }
        if (!message.send(asked.descriptors[0].get())) {
            ucs_debug("gaudi_ipc: process %d gets no answer: %m",
                      asked.credentials.pid);
        }
    }

    /* Nobody else gets to the folder; of another PID namespace the kernel says
     * no pid that would be of use. */
    static ucs_status_t check_sharer(const wire_request &wanted,
                                     const datagram &asked)
    {
        const process_id &sender = wanted.sender;
        return (sender.pid_namespace == own_process().pid_namespace) &&
                       (static_cast<pid_t>(sender.pid) != asked.credentials.pid)
                   ? UCS_ERR_REJECTED
                   : UCS_OK;
    }

    /* Where the kernel sends pidfds, a message without is of a process that
     * has ended, unless there was no room for one. */
    ucs_status_t check_sender(const wire_request &wanted,
                              const datagram &asked) const
    {
        const int pidfd = asked.pidfd.get();
        if (sends_pidfds && (pidfd < 0)) {
            return util::may_pass(-pidfd) ? UCS_ERR_NO_RESOURCE
                                          : UCS_ERR_REJECTED;
        }
        const pid_t pid = asked.credentials.pid;
        return (static_cast<pid_t>(wanted.sender.pid) != pid)
                   ? UCS_ERR_REJECTED
                   : check_namespaces(pid, pidfd);
    }

    /* Take what the sender has brought. */
    ucs_status_t meet(const wire_request &wanted, datagram &asked)
    {
        ucs_status_t (*take)(const process_id &, file_pair) = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock);
            const entry *known = find(wanted.file);
            take = (known == nullptr) ? nullptr : known->offer.take;
        }
        return (take == nullptr)
                   ? UCS_OK
                   : take(wanted.sender, {std::move(asked.descriptors[1]),
                                          std::move(asked.descriptors[2])});
    }

    std::mutex lock; /* held across opening */
    std::unordered_map<uint64_t, entry> files;
    int socket = -1;
    util::unique_fd ends; /* epoll, of processes; before the thread starts */
    bool sends_pidfds = false; /* the socket; before the thread starts */
    /* While a child had it, the name would stay taken. */
    util::closed_in_children not_in_children;
};

} // namespace

ucs_status_t file_service::add(file_offer offer, file_ref &file_p)
{
    server::entry made{std::move(offer), {}, 0};
    file_ref file;
    if ((getrandom(&file, sizeof(file), 0) != sizeof(file)) ||
        (!made.offer.open && !identify(made.offer.fds[0], made.first))) {
        return UCS_ERR_IO_ERROR;
    }
    made.secret  = file.secret;
    server &self = util::of_this_process<server>();
    std::lock_guard<std::mutex> guard(self.lock);
    self.files[file.name] = std::move(made);
    self.start();
    file_p = file;
    return UCS_OK;
}

void file_service::remove(const file_ref &file)
{
    server &self = util::of_this_process<server>();
    std::lock_guard<std::mutex> guard(self.lock);
    self.files.erase(file.name);
}

ucs_status_t file_service::look_up(const file_ref &file, file_pair &files_p)
{
    server &self = util::of_this_process<server>();
    std::lock_guard<std::mutex> guard(self.lock);
    const server::entry *known = self.find(file);
    if (known == nullptr) {
        return UCS_ERR_NO_ELEM;
    }
    if (known->offer.open) {
        return known->offer.open(files_p[0]);
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
    if (!identify(files_p[0].get(), now) || (now != known->first)) {
        files_p = {};
        return UCS_ERR_NO_ELEM;
    }
    return UCS_OK;
}

void file_service::call_at_end(int life, void (*handler)())
{
    epoll_event once{EPOLLIN | EPOLLONESHOT, {}};
    end_handler.store(handler);
    (void)epoll_ctl(util::of_this_process<server>().ends.get(), EPOLL_CTL_ADD,
                    life, &once);
}

} // namespace gaudi::ipc
