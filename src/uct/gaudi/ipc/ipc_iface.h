/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interface and endpoint of transport gaudi_ipc: put, get and active messages
 * between the processes of a machine, and within one.
 *
 * One thread at a time (UCT's rule). An interface has a mailbox, in which
 * others put messages, and a transfer engine, which moves bytes between memory
 * of this process and what remote keys stand for. An endpoint is a connection
 * to one mailbox; keys that are used on it have to be of that process.
 */
#pragma once

#include "uct/gaudi/ipc/ipc_boxes.h"
#include "uct/gaudi/ipc/ipc_operations.h"
#include "uct/gaudi/ipc/messages/connection.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"

#include <atomic>
#include <cstddef>
#include <memory>

namespace gaudi::ipc {

struct interface : interface_base {
    ~interface();
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    [[nodiscard]] mailbox_address address() const { return inbox->address(); }

    std::unique_ptr<mailbox> inbox;
    ucs_time_t next_look = 0; /* when to see whether peers are alive */
    util::unique_fd ended_fd; /* epoll: readable when a peer has ended */
    std::atomic<bool> has_unfollowed{false}; /* some peer is not in it */
    uint64_t invalidations = 0;              /* see open_invalidations */
    connection_table connections;            /* of the endpoints */
};

using endpoint = endpoint_of<struct transport, connection>;
template <>
ucs_status_t endpoint::open(const uct_ep_params_t &params);

/** Let the endpoints fail whose peers were killed, or have ended without
 *  closing their interfaces; with requests that wait, those whose peers have
 *  closed them, too: they would wait for good. A system call. */
void find_lost_peers(interface *iface);

/** UCT's operations, see base/ucx/transport.h for the others. */
struct transport : endpoint_operations<transport, interface, endpoint> {
    static constexpr char name[]   = "gaudi_ipc";
    static constexpr char title[]  = "gaudi_ipc transport";
    static constexpr char prefix[] = "GAUDI_IPC_";
    using config                   = interface_config;
    using second                   = box_transport;

    static constexpr uint16_t version = wire_version;
    /* Not for long, since a peer may compute meanwhile. */
    static constexpr double delivery_patience = 0.2;
    static constexpr bool shares_out          = false;
    static constexpr bool posts_messages      = false;
    static ucs_config_field_t config_table[];

    /* ipc_iface.cc */
    static std::vector<base::transport_device> devices();
    static base::transport_properties properties(uct_iface_h iface);
    static bool moves_host(uct_iface_h iface);
    static base::transport_estimate
    estimate(uct_iface_h iface, const base::transport_question &asked);
    static bool is_reachable(uct_iface_h iface,
                             const uct_device_addr_t *device_address,
                             const uct_iface_addr_t *address);
    static constexpr char unreachable[] =
        "of another box, user or namespace, or the kernel forbids it";
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static base::callback<uct_iface_event_fd_get_func_t> iface_event_fd_get;
    static base::callback<uct_iface_event_arm_func_t> iface_event_arm;

    /* ipc_rma.cc */
    static ucs_status_t find_remote(uct_ep_h ep, uct_rkey_t rkey,
                                    base::side &remote, uct_completion_t *comp);
    /** Once for every kind of transfer of an endpoint. */
    static void log_way(uct_ep_h ep, bool is_put, const base::side &local,
                        size_t length, const base::side &remote);
};

} // namespace gaudi::ipc
