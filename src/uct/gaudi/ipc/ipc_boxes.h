/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interface and endpoint of gaudi_ipc's second device, "boxes": active messages
 * to processes in other boxes, and puts and gets of the memory of their cards,
 * over external ports.
 *
 * One thread at a time (UCT's rule). Each endpoint has a link of its own, and
 * an interface one for each endpoint that leads to it. Gets need progress of
 * the peer.
 */
#pragma once

#include "uct/gaudi/base/ucx/absent.h"
#include "uct/gaudi/ipc/boxes/box_receiver.h"
#include "uct/gaudi/ipc/boxes/box_sender.h"
#include "uct/gaudi/ipc/boxes/way_out.h"
#include "uct/gaudi/ipc/ipc_operations.h"

#include <list>
#include <memory>
#include <string>

namespace gaudi::ipc {

/* Its home has the ports that messages go by. */
struct box_interface : interface_base {
    ~box_interface();
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    [[nodiscard]] const box_address &address() const { return own; }
    [[nodiscard]] bool arm();
    unsigned accept();
    unsigned receive();
    void send();

    box_address own{};
    util::unique_fd listener;
    util::closed_in_children closed_in_children;
    box_server server;
    std::list<std::unique_ptr<box_receiver>> incoming; /* oldest first */
};

using box_endpoint = endpoint_of<struct box_transport, box_sender>;
template <>
ucs_status_t box_endpoint::open(const uct_ep_params_t &params);

/** UCT's operations, see base/ucx/transport.h. */
struct box_transport
    : endpoint_operations<box_transport, box_interface, box_endpoint> {
    static constexpr char name[]   = "gaudi_ipc";
    static constexpr char device[] = "boxes";
    using config                   = interface_config;

    /* Addresses of machines else are as the other device's. */
    static constexpr uint16_t version = wire_version | 0x4000;
    /* Until they are there: what is lost with its link was not flushed. */
    static constexpr double delivery_patience = 1e6;
    static constexpr bool shares_out          = true;
    static constexpr bool posts_messages      = true;

    static bool is_of(const char *name);
    static base::transport_properties properties(uct_iface_h iface);
    static base::transport_estimate
    estimate(uct_iface_h iface, const base::transport_question &asked);
    static bool is_reachable(uct_iface_h iface,
                             const uct_device_addr_t *device_address,
                             const uct_iface_addr_t *address);
    static constexpr char unreachable[] = "of this box, or has no such device";
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static base::callback<uct_iface_event_fd_get_func_t> iface_event_fd_get;
    static base::callback<uct_iface_event_arm_func_t> iface_event_arm;

    /* What waits for the peer would wait for good where that waits, too. */
    static ucs_status_t ep_put_short(uct_ep_h ep, base::call_site caller,
                                     const void *buffer, unsigned length,
                                     uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept;
    static constexpr auto ep_get_short =
        base::unsupported<uct_ep_get_short_func_t>::op;

    static ucs_status_t find_remote(uct_ep_h ep, uct_rkey_t rkey,
                                    base::side &remote, uct_completion_t *comp);
};

} // namespace gaudi::ipc
