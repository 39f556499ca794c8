/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_iface.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/reachability.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

#include <sys/epoll.h>

namespace gaudi::ipc {

namespace {

/* UCP closes an endpoint as soon as it is flushed, tells the peer so on another
 * way, and the peer drops what it has not read by then: a flush waits until it
 * is read. Not for long, since a peer may compute meanwhile; seconds. */
constexpr double delivery_patience = 0.2;

/* Whether a flush has to wait for the receiver of what was sent before it. */
bool awaits_delivery(endpoint &self)
{
    if (self.patience == 0) {
        if ((self.sent == self.awaited) || (self.super.status() != UCS_OK)) {
            return false;
        }
        self.awaited  = self.sent;
        self.patience = ucs_get_time() + ucs_time_from_sec(delivery_patience);
    }
    if ((self.super.status() == UCS_OK) &&
        !self.out->is_delivered(self.awaited) &&
        (ucs_get_time() < self.patience)) {
        return true;
    }
    self.patience = 0;
    return false;
}

/* Whether some kind could be: what waits is known to itself alone. Transfers
 * must not wait for the receiver of messages. */
bool has_a_resource(endpoint *ep)
{
    const endpoint &self = *ep;
    return (self.super.status() != UCS_OK) || self.out->has_room() ||
           to_iface(ep->super.iface())->engine->has_resources() ||
           ((self.patience != 0) && (ucs_get_time() >= self.patience));
}

/* Told once: endpoints to the same process share its descriptor. */
void follow_peer(interface &iface, const remote_process &peer)
{
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    if ((epoll_ctl(iface.ended_fd.get(), EPOLL_CTL_ADD, peer.life(), &event) !=
         0) &&
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

/* A failed endpoint lets all through, so that they get its status. */
bool transport::has_resources(const endpoint &ep)
{
    return (ep.patience == 0) &&
           ((ep.super.status() != UCS_OK) ||
            (ep.out->has_room() &&
             to_iface(ep.super.iface())->engine->has_resources()));
}

ucs_status_t transport::try_request(endpoint &ep, uct_pending_req_t *req)
{
    if (!has_a_resource(&ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    ep.has_turn               = true;
    const ucs_status_t status = req->func(req);
    ep.has_turn               = false;
    return status;
}

ucs_status_t transport::check_peer(uct_ep_h ep)
{
    endpoint &self = *to_ep(ep);
    if (!to_iface(ep->iface)->is_inherited() && !self.out->peer_alive()) {
        self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return UCS_OK;
}

ucs_status_t transport::ep_flush(uct_ep_h ep, unsigned flags,
                                 uct_completion_t *comp) noexcept
{
    if (flags & UCT_FLUSH_FLAG_CANCEL) {
        to_iface(ep->iface)->engine->cancel(to_ep(ep)->domain,
                                            UCS_ERR_CANCELED);
    }
    endpoint &self = *to_ep(ep);
    /* What waits comes before the flush, unless that has waited, too. */
    if (!self.has_turn && !self.pending.empty()) {
        return UCS_ERR_NO_RESOURCE;
    }
    /* One request has one turn, whatever comes of it: UCP from 1.14 on flushes
     * again in the same callback, and what that completed would be tried once
     * more. */
    self.has_turn = false;
    if (!(flags & UCT_FLUSH_FLAG_CANCEL) &&
        !to_iface(ep->iface)->is_inherited() && awaits_delivery(self)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return to_iface(ep->iface)->engine->flush(&to_ep(ep)->domain, comp);
}

ucs_status_t endpoint::open(const uct_ep_params_t &params)
{
    machine_address machine;
    mailbox_address to;
    memcpy(&machine, params.dev_addr, sizeof(machine));
    memcpy(&to, params.iface_addr, sizeof(to));
    interface &iface = *to_iface(super.iface());
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
    peer = out->process();
    if (!iface.is_inherited()) {
        follow_peer(iface, *peer);
    }
    base::transfer_engine::open(domain);
    ucs_list_add_tail(&iface.endpoints, &all);
    return UCS_OK;
}

endpoint::~endpoint()
{
    if (out == nullptr) {
        return;
    }
    interface &iface = *to_iface(super.iface());
    transport::ep_pending_purge(super.handle(), nullptr, nullptr);
    {
        const base::worker_block block(iface.super);
        ucs_list_del(&all);
        out.reset();
    }
    iface.engine->close(domain);
}

} // namespace gaudi::ipc
