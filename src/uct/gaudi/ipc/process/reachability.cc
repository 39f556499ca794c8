/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/reachability.h"

#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/process/datagram.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "util/process.h"

#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace gaudi::ipc {

namespace {

/* Users of other processes are part of some: they are not to fill memory. */
constexpr size_t most_reasons = 16;

struct told_reasons {
    std::mutex lock; /* leaf */
    std::set<std::string> texts;

    bool add(const std::string &why)
    {
        std::lock_guard<std::mutex> guard(lock);
        return (texts.size() < most_reasons) && texts.insert(why).second;
    }
};

/* All of them: whoever shares one after the other would start as often. */
std::string other_namespaces(const machine_address &own,
                             const machine_address &peer)
{
    std::vector<std::string> kinds;
    if (peer.net_namespace != own.net_namespace) {
        kinds.emplace_back("network");
    }
    if (peer.pid_namespace != own.pid_namespace) {
        kinds.emplace_back("PID");
    }
    if (peer.user_namespace != own.user_namespace) {
        kinds.emplace_back("user");
    }
    std::string text;
    for (size_t i = 0; i < kinds.size(); ++i) {
        text += (i == 0) ? "" : (i + 1 < kinds.size()) ? ", " : " and ";
        text += kinds[i];
    }
    return text.empty() ? ""
                        : "it is in another " + text + " namespace" +
                              ((kinds.size() > 1) ? " than this process" : "") +
                              ", and ";
}

std::string both_users(const machine_address &own, const machine_address &peer)
{
    return "it belongs to user " + std::to_string(peer.uid) +
           ", and this process to " + std::to_string(own.uid);
}

/* Why a process of other namespaces is not reached by the folder: in it each
 * user of the host has one of its own. */
std::string why_no_folder(const machine_address &own,
                          const machine_address &peer)
{
    std::string refused  = why_no_own_user();
    const bool have_each = (own.folder != 0) && (peer.folder != 0);
    if (!refused.empty()) {
        return refused;
    }
    if (have_each && (peer.user_namespace == own.user_namespace) &&
        (peer.uid != own.uid)) {
        return "UCX_GAUDI_IPC_DIR connects processes of one user: " +
               both_users(own, peer);
    }
    return std::string("UCX_GAUDI_IPC_DIR names no folder that both have") +
           (have_each ? " as one user of the host" : "");
}

void tell(const machine_address &machine, const process_id &process,
          const std::string &why)
{
    ucs_debug("gaudi_ipc: process %u is not reachable: %s", process.pid,
              why.c_str());
    if (!util::of_this_process<told_reasons>().add(why)) {
        return;
    }
    const char *consequence = "other transports move what goes there";
    ucs_log_level_t level   = UCS_LOG_LEVEL_INFO;
    if (!base::find_allowed_transports().others) {
        consequence = "UCX_TLS has no other way there";
        level       = UCS_LOG_LEVEL_WARN;
    } else if ((machine.system == own_machine().system) &&
               !base::has_new_protocols()) {
        consequence = "a put or get of device memory will end a process, "
                      "unless UCX_PROTO_ENABLE=y";
        level       = UCS_LOG_LEVEL_WARN;
    }
    ucs_log(level,
            "gaudi_ipc: process %u, perhaps others, is out of reach: %s; %s",
            process.pid, why.c_str(), consequence);
}

} // namespace

std::string why_unreachable(const machine_address &peer)
{
    const machine_address own = own_machine();
    if (peer.version != own.version) {
        return "it speaks version " + std::to_string(peer.version) +
               ", and this process " + std::to_string(own.version);
    }
    if (peer.system != own.system) {
        return "it is on another machine";
    }
    const bool have_folder = (own.folder != 0) && (own.folder == peer.folder);
    const std::string namespaces = other_namespaces(own, peer);
    if (!have_folder && !namespaces.empty()) {
        return namespaces + why_no_folder(own, peer);
    }
    if (peer.box != own.box) {
        return "it is in another box of cards";
    }
    if (!have_folder && (peer.uid != own.uid)) {
        return both_users(own, peer);
    }
    return {};
}

ucs_status_t probe(const machine_address &machine, const process_id &process)
{
    std::string why = why_unreachable(machine);
    if (!why.empty()) {
        tell(machine, process, why);
        return UCS_ERR_UNREACHABLE;
    }
    std::shared_ptr<remote_process> peer;
    ucs_status_t status = remote_process::open(process, peer);
    if (status == UCS_OK) {
        status = peer->probe_files();
        if ((status == UCS_ERR_UNREACHABLE) && peer->is_alive()) {
            const std::string refused = why_no_own_user();
            tell(machine, process,
                 refused.empty() ? "it cannot be asked for what it has open"
                                 : refused);
        }
    }
    return status;
}

} // namespace gaudi::ipc
