#include "uct/gaudi/ipc/process/process_id.h"

#include "uct/gaudi/base/cards/box.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/process.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

struct own_names {
    unsigned generation;
    node_address node;
    process_id process;
};

uint64_t inode_of(const char *path)
{
    struct stat info;
    return (stat(path, &info) == 0) ? info.st_ino : 0;
}

own_names find_own_names(unsigned generation)
{
    own_names names{};
    names.generation              = generation;
    names.node.box                = base::box_identity();
    names.node.pid_namespace      = inode_of("/proc/self/ns/pid");
    names.node.uid                = geteuid();
    names.node.version            = wire_version;
    const uint64_t user_namespace = inode_of("/proc/self/ns/user");
    names.node.user_namespace =
        static_cast<uint16_t>(user_namespace ^ (user_namespace >> 16));
    names.process.nonce      = util::process_identity();
    names.process.pid        = static_cast<uint32_t>(getpid());
    names.process.start_time = process_start_time(names.process.pid);
    return names;
}

own_names own()
{
    static std::atomic<const own_names *> current{nullptr};

    util::count_forks();
    const unsigned generation = util::process_generation();
    const own_names *known    = current.load(std::memory_order_acquire);
    if ((known == nullptr) || (known->generation != generation)) {
        auto fresh =
            std::make_unique<const own_names>(find_own_names(generation));
        if (fresh->process.start_time == unknown_start_time) {
            return *fresh; /* there may be room for a descriptor next time */
        }
        /* What a parent left is not deleted: a thread of it may have been
         * about to read it, and it is small. */
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return *known;
}

} // namespace

node_address own_node()
{
    return own().node;
}

process_id own_process()
{
    return own().process;
}

std::string why_unreachable(const node_address &peer)
{
    const node_address node = own_node();
    if (peer.version != node.version) {
        return "it speaks version " + std::to_string(peer.version) +
               ", and this process " + std::to_string(node.version);
    }
    if (peer.box != node.box) {
        return "it is on another machine or in another box of cards";
    }
    if (peer.pid_namespace != node.pid_namespace) {
        return "it is in another PID namespace";
    }
    if (peer.user_namespace != node.user_namespace) {
        return "it is in another user namespace";
    }
    if (peer.uid != node.uid) {
        return "it belongs to user " + std::to_string(peer.uid) +
               ", and this process to " + std::to_string(node.uid);
    }
    return {};
}

uint64_t process_start_time(uint32_t pid)
{
    constexpr unsigned wanted = 22;

    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const int fd           = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return base::is_room_lacking(errno) ? unknown_start_time : 0;
    }
    char text[1024];
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    const int error      = errno;
    close(fd);
    if (length <= 0) {
        return ((length == 0) || (error == ESRCH)) ? 0 : unknown_start_time;
    }
    text[length] = '\0';
    /* The second field is the program's name in parentheses, whatever that
     * contains. */
    std::string_view rest(text, static_cast<size_t>(length));
    size_t position = rest.rfind(')');
    for (unsigned field = 2; field < wanted; ++field) {
        position = rest.find(' ', position);
        if (position == std::string_view::npos) {
            return 0;
        }
        ++position;
    }
    return std::strtoull(rest.data() + position, nullptr, 10);
}

bool describe_file(int fd, file_kind kind, file_ref &file_p)
{
    struct stat info;
    file_token token;
    if ((fstat(fd, &info) != 0) ||
        (getrandom(&token, sizeof(token), 0) != sizeof(token))) {
        return false;
    }
    file_p = {info.st_dev, info.st_ino, static_cast<uint32_t>(fd), kind, token};
    return true;
}

bool is_file(int fd, const file_ref &file)
{
    struct stat info;
    return (fstat(fd, &info) == 0) && (info.st_dev == file.device) &&
           (info.st_ino == file.inode);
}

} // namespace gaudi::ipc
