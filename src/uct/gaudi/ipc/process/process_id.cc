#include "uct/gaudi/ipc/process/process_id.h"

#include "uct/gaudi/base/cards/driver.h"
#include "util/other_process.h"
#include "util/per_process.h"

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

uint64_t inode_of(const char *path)
{
    struct stat info;
    return (stat(path, &info) == 0) ? info.st_ino : 0;
}

struct own_names {
    own_names()
    {
        const uint64_t user_namespace = inode_of("/proc/self/ns/user");
        machine.box                   = base::box_identity();
        machine.pid_namespace         = inode_of("/proc/self/ns/pid");
        machine.uid                   = geteuid();
        machine.version               = wire_version;
        machine.user_namespace =
            static_cast<uint16_t>(user_namespace ^ (user_namespace >> 16));
        process.nonce = util::process_identity();
        process.pid   = static_cast<uint32_t>(getpid());
    }

    machine_address machine{};
    process_id process{};
    /* Until there is room for the descriptor that tells it. */
    std::atomic<uint64_t> start_time{util::unknown_start_time};
};

} // namespace

machine_address own_machine()
{
    return util::of_this_process<own_names>().machine;
}

process_id own_process()
{
    own_names &names   = util::of_this_process<own_names>();
    process_id process = names.process;
    process.start_time = names.start_time.load(std::memory_order_relaxed);
    if (process.start_time == util::unknown_start_time) {
        process.start_time = util::process_start_time(process.pid);
        names.start_time.store(process.start_time, std::memory_order_relaxed);
    }
    return process;
}

std::string why_unreachable(const machine_address &peer)
{
    const machine_address machine = own_machine();
    if (peer.version != machine.version) {
        return "it speaks version " + std::to_string(peer.version) +
               ", and this process " + std::to_string(machine.version);
    }
    if (peer.box != machine.box) {
        return "it is on another machine or in another box of cards";
    }
    if (peer.pid_namespace != machine.pid_namespace) {
        return "it is in another PID namespace";
    }
    if (peer.user_namespace != machine.user_namespace) {
        return "it is in another user namespace";
    }
    if (peer.uid != machine.uid) {
        return "it belongs to user " + std::to_string(peer.uid) +
               ", and this process to " + std::to_string(machine.uid);
    }
    return {};
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
