/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/shared_folder.h"

#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/datagram.h"
#include "util/errors.h"
#include "util/other_process.h"
#include "util/text.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* A FIFO that is older and has no reader is of a process that was killed; a
 * younger one may be of one that starts. Seconds. */
constexpr time_t youth = 60;

constexpr char life_suffix[] = ".life";

std::string name_of(uint64_t word)
{
    char text[24];
    (void)std::snprintf(text, sizeof(text), "%016lx",
                        static_cast<unsigned long>(word));
    return text;
}

std::string life_of(uint64_t word)
{
    return name_of(word) + life_suffix;
}

/* The word of which a file is the FIFO. */
std::optional<uint64_t> word_of_life(const std::string &name)
{
    const uint64_t word = std::strtoull(name.c_str(), nullptr, 16);
    return (name == life_of(word)) ? std::optional(word) : std::nullopt;
}

/* What this user is called around its user namespace: a mount may show folders
 * to two as root's who are different users to the kernel. */
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

/* The end of a FIFO of this user's that its process does not have; nobody reads
 * from anything else. @return None: errno tells. */
util::unique_fd open_fifo(int folder, const std::string &name,
                          struct stat &info)
{
    if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return {};
    }
    errno = ENXIO;
    return (S_ISFIFO(info.st_mode) && (info.st_uid == geteuid()))
               ? util::unique_fd(
                     openat(folder, name.c_str(),
                            O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC))
               : util::unique_fd();
}

/* Whose files a process removes when it exits. */
constinit std::atomic<const shared_folder *> to_empty{nullptr};

} // namespace

shared_folder &shared_folder::instance()
{
    return util::of_this_process<shared_folder>();
}

uint32_t shared_folder::identity()
{
    const std::lock_guard<std::mutex> guard(lock_);
    open();
    return identity_;
}

int shared_folder::service()
{
    return (identity() != 0) ? socket_.get() : -1;
}

bool shared_folder::connect(int client, uint64_t word)
{
    const bool is_there = (identity() != 0);
    errno               = ENOENT;
    return is_there &&
           connect_to_service(client, service_name(path_of(name_of(word))));
}

util::unique_fd shared_folder::open_life(uint64_t word)
{
    struct stat info;
    const bool is_there = (identity() != 0);
    errno               = ENOENT;
    return is_there ? open_fifo(folder_.get(), life_of(word), info)
                    : util::unique_fd();
}

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
    if (to_empty.exchange(this) == nullptr) { /* else it was, by a parent */
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
    if (!is_own_user({0, info.st_uid, 0})) {
        return name + " in it belongs to user " + std::to_string(info.st_uid);
    }
    if ((info.st_mode & 077) != 0) {
        return name + " in it is open to other users";
    }
    word_                  = folder_word(util::process_identity());
    const std::string life = life_of(word_);
    if (mkfifoat(folder_.get(), life.c_str(), 0600) != 0) {
        return error("making a FIFO in it");
    }
    life_.reset(openat(folder_.get(), life.c_str(),
                       O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    socket_ = open_service(service_name(path_of(name_of(word_))), nullptr);
    if (!life_ || !socket_) {
        std::string what = error("making a socket in it");
        remove_files(word_);
        return what;
    }
    int at = 0;
    for (const util::unique_fd *each : {&folder_, &life_, &socket_}) {
        not_in_children_[at++] = util::closed_in_children(each->get());
    }
    const uint64_t hash = (info.st_dev * 0x9e3779b97f4a7c15) ^
                          (info.st_ino * 0x100000001b3) ^
                          (user_outside() << 17);
    identity_ = static_cast<uint32_t>(hash ^ (hash >> 32)) | 1;
    return {};
}

/* The path of a socket has 108 characters at most, wherever it is. */
std::string shared_folder::path_of(const std::string &file) const
{
    return "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + file;
}

void shared_folder::remove_files(uint64_t word) const
{
    (void)unlinkat(folder_.get(), life_of(word).c_str(), 0);
    (void)unlinkat(folder_.get(), name_of(word).c_str(), 0);
}

void shared_folder::sweep() const
{
    for (const auto &entry : util::list_folder(path_of("."))) {
        const std::string name = entry.filename();
        const auto word        = word_of_life(name);
        struct stat info;
        if (word.has_value() && !open_fifo(folder_.get(), name, info) &&
            (errno == ENXIO) && S_ISFIFO(info.st_mode) &&
            (info.st_mtime < std::time(nullptr) - youth)) {
            remove_files(*word);
        }
    }
}

/* Not of the parent: its files stay. */
void shared_folder::remove_at_exit()
{
    const shared_folder *own = to_empty.load();
    if ((own != nullptr) &&
        (own->word_ == folder_word(util::process_identity()))) {
        own->remove_files(own->word_);
    }
}

bool process_has_ended(uint64_t word)
{
    if ((word & in_folder) == 0) {
        return util::process_has_ended(word);
    }
    const util::unique_fd life = shared_folder::instance().open_life(word);
    return life ? util::has_ended(life.get())
                : ((errno == ENXIO) || (errno == ENOENT));
}

} // namespace gaudi::ipc
