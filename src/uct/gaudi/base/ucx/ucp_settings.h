/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCP's own variables choose: which of its two sets of protocols it uses
 * (UCX_PROTO_ENABLE), and among which transports (UCX_TLS) and devices
 * (UCX_SHM_DEVICES).
 *
 * Of that depends who moves host memory between the processes of a machine. UCP
 * splits a long message over the fastest transports that can move it. From host
 * to host a card has no part in it, and the CPU copies whoever is chosen: to
 * share it with the machine's own transports costs time.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/transport_list.h"

#include <string>

namespace gaudi::base {

/** Whether UCP uses its new protocols. */
bool has_new_protocols();

/** Whether UCP's protocols can handle Gaudi memory: the old ones cannot from
 *  1.16 on, where the new ones are the default. If not, one error is logged,
 *  once. */
bool has_usable_protocols();

/** gaudi_ipc's one device, which is of the machine. */
inline constexpr char ipc_device[] = "gaudi";

/** Whether UCX_SHM_DEVICES lets UCP use it. */
bool allows_ipc_device();

/** How UCP can be kept from moving host memory by a transport that it is to use
 *  for device memory. */
enum class host_exclusion {
    impossible,      /**< the old protocols choose by bandwidth alone */
    by_registration, /**< the transport does not register host memory */
    by_estimate      /**< it does, but does not move from host to host */
};

#if UCT_API < UCT_VERSION(1, 16)
inline constexpr auto excluding_host = host_exclusion::impossible;
#elif UCT_API < UCT_VERSION(1, 19)
inline constexpr auto excluding_host = host_exclusion::by_registration;
#else
inline constexpr auto excluding_host = host_exclusion::by_estimate;
#endif

/** What UCX_TLS allows. */
struct allowed_transports : gaudi_allowed_transports {
    std::string setting; /**< what it is set to, or "all" */
};

/** Read it, in the environment and UCX's files: the one place that does. */
allowed_transports find_allowed_transports();

/**
 * Whether gaudi_ipc is to move host memory to host memory.
 *
 * @param wanted  UCX_GAUDI_IPC_HOST, a ucs_ternary_auto_value_t.
 */
inline bool is_to_move_host(int wanted)
{
    if (excluding_host == host_exclusion::impossible) {
        return true;
    }
    const auto allowed = find_allowed_transports();
    /* UCP then takes it for copies within the process, too, and must not be
     * without host memory. */
    if ((excluding_host == host_exclusion::by_registration) && !allowed.copy) {
        return true;
    }
    return (wanted == UCS_YES) || ((wanted != UCS_NO) && !allowed.reach_host);
}

/** Whether gaudi_ipc is to register host memory. @param moves  It. */
inline bool is_to_register_host(bool moves)
{
    return moves || (excluding_host != host_exclusion::by_registration);
}

} // namespace gaudi::base
