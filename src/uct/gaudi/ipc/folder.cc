/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/folder.h"

#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/fork_handlers.h"
#include "util/process.h"
#include "util/text.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* A younger socket at which nobody listens may be of a process that starts.
 * Seconds. */
constexpr time_t youth = 60;

std::string name_of(uint64_t process)
{
    char text[24];
    (void)std::snprintf(text, sizeof(text), "%016lx",
                        static_cast<unsigned long>(process));
    return text;
}

/* The user id outside of its user namespace: a mount may show folders of two
 * users of the host as root's. */
uint64_t user_outside()
{
    const uint64_t user = geteuid();
    std::ifstream map("/proc/self/uid_map");
    for (uint64_t here, there, count; map >> here >> there >> count;) {
        if ((user >= here) && (user - here < count)) {
            return user - here + there;
        }
    }
    return user;
}

class shared_folder {
public:
    [[nodiscard]] uint32_t identity()
    {
        const std::lock_guard<std::mutex> guard(lock_);
        open();
        return identity_;
    }

    [[nodiscard]] int socket()
    {
        return (identity() != 0) ? socket_.get() : -1;
    }

    /* By the descriptor: the path of a socket has 107 characters at most. */
    [[nodiscard]] std::string path_of(const std::string &file) const
    {
        return "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + file;
    }

private:
    void open(); /* under the lock */
    [[nodiscard]] std::string make_files(const std::string &in);
    void remove_own() const
    {
        (void)unlinkat(folder_.get(), name_of(process_).c_str(), 0);
    }
    void sweep() const;
    static void remove_at_exit();

    std::mutex lock_;
    bool asked_        = false;
    uint32_t identity_ = 0;
    uint64_t process_  = 0; /* which made the socket */
    util::unique_fd folder_;
    util::unique_fd socket_;
    util::closed_in_children not_in_children_[2];
};

/* Whose socket is removed at exit. */
constinit std::atomic<const shared_folder *> to_remove{nullptr};

void shared_folder::open()
{
    const std::string wanted = base::config().ipc_folder;
    if (std::exchange(asked_, true) || wanted.empty()) {
        return;
    }
    const std::string wrong = make_files(wanted);
    if (!wrong.empty()) {
        identity_ = 0;
        ucs_warn("gaudi_ipc: UCX_GAUDI_IPC_DIR=%s is not used: %s; processes "
                 "of other namespaces are out of reach",
                 util::to_printable(wanted).c_str(), wrong.c_str());
        return;
    }
    if (to_remove.exchange(this) == nullptr) { /* else a parent has added it */
        (void)std::atexit(remove_at_exit);
    }
    sweep();
}

/* @return What is wrong, for people. */
std::string shared_folder::make_files(const std::string &in)
{
    const uid_t user       = geteuid();
    const std::string name = "ucx-gaudi-" + std::to_string(user);
    const auto error       = [](const std::string &what) {
        return what + ": " + std::strerror(errno);
    };
    struct stat info;
    if (std::string refused = why_no_own_user(); !refused.empty()) {
        return refused;
    }
    const util::unique_fd parent(
        ::open(in.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!parent) {
        return std::strerror(errno);
    }
    if ((mkdirat(parent.get(), name.c_str(), 0700) != 0) && (errno != EEXIST)) {
        return error("making " + name + " in it");
    }
    folder_.reset(openat(parent.get(), name.c_str(),
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder_ || (fstat(folder_.get(), &info) != 0)) {
        return error(name + " in it");
    }
    if (info.st_uid != user) {
        return name + " in it belongs to user " + std::to_string(info.st_uid);
    }
    if ((info.st_mode & 077) != 0) {
        return name + " in it is open to other users";
    }
    process_ = util::process_identity();
    socket_  = listen_at_path(path_of(name_of(process_)));
    if (!socket_) {
        return error("making a socket in it");
    }
    not_in_children_[0] = util::closed_in_children(folder_.get());
    not_in_children_[1] = util::closed_in_children(socket_.get());
    const uint64_t hash = (info.st_dev * 0x9e3779b97f4a7c15) ^
                          (info.st_ino * 0x100000001b3) ^
                          (user_outside() << 17);
    identity_ = static_cast<uint32_t>(hash ^ (hash >> 32)) | 1;
    return {};
}

void shared_folder::sweep() const
{
    for (const auto &entry : util::list_folder(path_of("."))) {
        const std::string name = entry.filename();
        struct stat info;
        int error = 0;
        if ((fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) ==
             0) &&
            S_ISSOCK(info.st_mode) &&
            (info.st_mtime < std::time(nullptr) - youth) &&
            !connect_to_path(path_of(name), error) && (error == ECONNREFUSED)) {
            (void)unlinkat(folder_.get(), name.c_str(), 0);
        }
    }
}

void shared_folder::remove_at_exit()
{
    const shared_folder *own = to_remove.load();
    if ((own != nullptr) && (own->process_ == util::process_identity())) {
        own->remove_own();
    }
}

shared_folder &folder()
{
    return util::of_this_process<shared_folder>();
}

} // namespace

uint32_t folder_identity()
{
    return folder().identity();
}

util::unique_fd connect_to(uint64_t process, int &error_p)
{
    util::unique_fd fd = connect_to_name(process, error_p);
    if (!fd && (error_p == ECONNREFUSED) && (folder().identity() != 0)) {
        fd = connect_to_path(folder().path_of(name_of(process)), error_p);
    }
    return fd;
}

int folder_socket()
{
    return folder().socket();
}

} // namespace gaudi::ipc
