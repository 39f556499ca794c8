/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_iface.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/reachability.h"
#include "util/epoll.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* Told once: endpoints to the same process share its descriptor. */
void follow_peer(interface &iface, const remote_process &peer)
{
    if (!util::add_event(iface.ended_fd.get(), peer.life(), EPOLLONESHOT) &&
        (errno != EEXIST)) {
        ucs_debug("gaudi_ipc: the end of process %u will wake nobody: %m",
                  peer.id().pid);
        iface.has_unfollowed = true;
    }
}

} // namespace

/* UCP 1.13 looks after peers itself, but not while it waits for the answer to
 * its first request to connect (ucp_wireup_ep_check). */
void find_lost_peers(interface *iface)
{
    constexpr int most = 16;
    epoll_event ended[most];
    const bool some_ended =
        (epoll_wait(iface->ended_fd.get(), ended, most, 0) > 0) ||
        iface->has_unfollowed;
    if (!some_ended && iface->pending.empty()) {
        return;
    }
    const base::worker_block block(iface->super);
    endpoint *ep;
    ucs_list_for_each(ep, &iface->endpoints, all)
    {
        if ((ep->super.status() == UCS_OK) &&
            (ep->pending.empty() ? (some_ended && ep->out->peer_lost())
                                 : !ep->out->peer_alive())) {
            ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
    }
}

template <>
ucs_status_t endpoint::open(const uct_ep_params_t &params)
{
    machine_address machine;
    mailbox_address to;
    memcpy(&machine, params.dev_addr, sizeof(machine));
    memcpy(&to, params.iface_addr, sizeof(to));
    interface &iface = *transport::to_iface(super.iface());
    const base::worker_block block(iface.super);
    const std::string why = why_unreachable(machine);
    if (!why.empty()) {
        ucs_debug("gaudi_ipc: process %u cannot be reached: %s", to.process.pid,
                  why.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    const ucs_status_t opened = share_connection(iface.connections, to, out);
    if (opened != UCS_OK) {
        return opened;
    }
    if (!iface.is_inherited()) {
        follow_peer(iface, *out->process());
    }
    base::transfer_engine::open(domain);
    ucs_list_add_tail(&iface.endpoints, &all);
    return UCS_OK;
}

} // namespace gaudi::ipc
