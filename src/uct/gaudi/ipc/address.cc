/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/address.h"

#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/folder.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/process.h"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

extern "C" {
#include <ucs/sys/uid.h>
}

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* Peers' user ids are part of some reasons, and are not to fill memory. */
constexpr size_t max_logged_reasons = 16;

/* The kernel's numbers of namespaces have 32 bits. */
uint32_t inode_of(const char *path)
{
    struct stat info;
    return (stat(path, &info) == 0) ? static_cast<uint32_t>(info.st_ino) : 0;
}

constexpr uint32_t fold(uint64_t hash)
{
    return static_cast<uint32_t>(hash ^ (hash >> 32));
}

struct own_address {
    const uint32_t user_namespace = inode_of("/proc/self/ns/user");
    const machine_address machine{
        .system        = fold(ucs_get_system_id()),
        .box           = fold(base::box_identity()),
        .net_namespace = inode_of("/proc/self/ns/net"),
        .uid           = geteuid(),
        .version       = wire_version,
        .user_namespace =
            static_cast<uint16_t>(user_namespace ^ (user_namespace >> 16)),
        .folder = folder_identity()};
};

struct logged_reasons {
    std::mutex lock; /* leaf */
    std::set<std::string> texts;
    std::string
        slow; /* of a peer whose data other transports stage; set once */

    bool add(const std::string &why)
    {
        const std::lock_guard<std::mutex> guard(lock);
        return (texts.size() < max_logged_reasons) && texts.insert(why).second;
    }

    bool add_slow(const std::string &text)
    {
        const std::lock_guard<std::mutex> guard(lock);
        const bool is_first = slow.empty();
        if (is_first) {
            slow = text;
        }
        return is_first;
    }
};

std::string different_users(const machine_address &own,
                            const machine_address &peer)
{
    return "it belongs to user " + std::to_string(peer.uid) +
           ", and this process to " + std::to_string(own.uid);
}

/* Why the folder does not connect processes of different namespaces. */
std::string why_no_folder(const machine_address &own,
                          const machine_address &peer)
{
    std::string unmapped = why_no_own_user();
    if (!unmapped.empty()) {
        return unmapped;
    }
    const bool both = (own.folder != 0) && (peer.folder != 0);
    if (both && (peer.user_namespace == own.user_namespace) &&
        (peer.uid != own.uid)) {
        return "UCX_GAUDI_IPC_DIR connects processes of one user: " +
               different_users(own, peer);
    }
    return std::string("UCX_GAUDI_IPC_DIR names no folder that both have") +
           (both ? " as one user of the host" : "");
}

void warn_of_slow()
{
    ucs_warn("%s", util::of_this_process<logged_reasons>().slow.c_str());
}

void log_unreachable(const machine_address &machine,
                     const interface_address &to, const obstacle &found)
{
    ucs_debug("gaudi_ipc: process %u is not reachable: %s", to.pid,
              found.why.c_str());
    auto &logged = util::of_this_process<logged_reasons>();
    if (!logged.add(found.why)) {
        return;
    }
    const bool is_near      = (machine.system == own_machine().system);
    const bool others       = base::find_allowed_transports().others;
    const char *fix         = found.fix;
    const char *consequence = "other transports move what goes there";
    if (!others) {
        consequence = "UCX_TLS has no other way there";
        fix         = (fix != nullptr) ? fix : "add tcp to UCX_TLS";
    } else if (is_near && base::has_new_protocols()) {
        consequence = "other transports stage its device memory, many times "
                      "slower";
    } else if (is_near) {
        consequence = "a put or get of device memory will end a process, "
                      "unless UCX_PROTO_ENABLE=y";
    }
    const std::string text =
        "gaudi_ipc: process " + std::to_string(to.pid) +
        ", perhaps others, is out of reach: " + found.why + "; " + consequence +
        ((fix != nullptr) ? std::string(" (") + fix + ")" : "");
    /* Programs without device memory lose nothing by it. */
    if (others && is_near && logged.add_slow(text) &&
        base::when_there_is_memory(warn_of_slow)) {
        return;
    }
    ucs_log(others ? UCS_LOG_LEVEL_INFO : UCS_LOG_LEVEL_WARN, "%s",
            text.c_str());
}

} // namespace

machine_address own_machine()
{
    return util::of_this_process<own_address>().machine;
}

place_hashes hashes_of(const machine_address &machine)
{
    const auto hash = [](std::initializer_list<uint64_t> words) {
        uint64_t sum = 0xcbf29ce484222325; /* FNV-1a, by words */
        for (const uint64_t word : words) {
            sum = (sum ^ word) * 0x100000001b3;
            sum ^= sum >> 29;
        }
        return fold(sum);
    };
    return {.machine = hash({machine.system, machine.box, machine.version,
                             machine.net_namespace, machine.user_namespace,
                             machine.uid}),
            .folder  = (machine.folder == 0)
                           ? 0
                           : hash({machine.system, machine.box, machine.version,
                                   machine.folder}) |
                                1};
}

obstacle find_obstacle(const machine_address &peer)
{
    const machine_address own = own_machine();
    if (peer.version != own.version) {
        return {"it speaks version " + std::to_string(peer.version) +
                    ", and this process " + std::to_string(own.version),
                "use one version of ucx-gaudi for both"};
    }
    if (peer.system != own.system) {
        return {"it is on another machine", nullptr};
    }
    const bool same_folder = (own.folder != 0) && (own.folder == peer.folder);
    const bool other_net   = peer.net_namespace != own.net_namespace;
    const bool other_user  = peer.user_namespace != own.user_namespace;
    if (!same_folder && (other_net || other_user)) {
        return {std::string("it is in another ") +
                    (other_net ? "network" : "") +
                    ((other_net && other_user) ? " and " : "") +
                    (other_user ? "user" : "") + " namespace, and " +
                    why_no_folder(own, peer),
                "let both share these namespaces, or set UCX_GAUDI_IPC_DIR to "
                "a folder of both, as one user"};
    }
    if (peer.box != own.box) {
        return {"it is in another box of cards",
                "give both the same HLTHUNK_EMU_NODE, or none"};
    }
    if (!same_folder && (peer.uid != own.uid)) {
        return {different_users(own, peer), "run both as one user"};
    }
    return {};
}

bool is_reachable(const machine_address &machine, const interface_address &to)
{
    obstacle found = find_obstacle(machine);
    if (found.why.empty()) {
        int error                   = 0;
        const util::unique_fd tried = connect_to(to.process, error);
        /* Without a descriptor, or with a full queue of a stopped peer, it may
         * be reachable: unreachable memory would be touched by the CPU. */
        if (tried || (error == EMFILE) || (error == ENFILE) ||
            (error == EAGAIN)) {
            return true;
        }
        if (error == ECONNREFUSED) { /* it has ended */
            ucs_debug("gaudi_ipc: process %u accepts no connection", to.pid);
            return false;
        }
        found = {why_no_own_user(), "run it as another user"};
        if (found.why.empty()) {
            found = {std::string("cannot connect to it: ") +
                         std::strerror(error),
                     "let both use one UCX_GAUDI_IPC_DIR, or none"};
        }
    }
    log_unreachable(machine, to, found);
    return false;
}

} // namespace gaudi::ipc
