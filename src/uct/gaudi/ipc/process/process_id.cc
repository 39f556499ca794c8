/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/process_id.h"

#include "uct/gaudi/base/cards/driver.h"
#include "util/other_process.h"
#include "util/process.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>

extern "C" {
#include <ucs/sys/uid.h>
}

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* The kernel's numbers of namespaces have 32 bits. */
uint32_t inode_of(const char *path)
{
    struct stat info;
    return (stat(path, &info) == 0) ? static_cast<uint32_t>(info.st_ino) : 0;
}

uint32_t fold(uint64_t hash)
{
    return static_cast<uint32_t>(hash ^ (hash >> 32));
}

struct own_names {
    const uint32_t user_namespace = inode_of("/proc/self/ns/user");
    const machine_address machine{
        .system        = fold(ucs_get_system_id()),
        .box           = fold(base::box_identity()),
        .pid_namespace = inode_of("/proc/self/ns/pid"),
        .net_namespace = inode_of("/proc/self/ns/net"),
        .uid           = geteuid(),
        .version       = wire_version,
        .user_namespace =
            static_cast<uint16_t>(user_namespace ^ (user_namespace >> 16)),
        .folder = shared_folder::instance().identity()};
    const process_id process{.nonce         = util::process_identity(),
                             .start_time    = util::unknown_start_time,
                             .pid           = static_cast<uint32_t>(getpid()),
                             .pid_namespace = machine.pid_namespace};
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

} // namespace gaudi::ipc
