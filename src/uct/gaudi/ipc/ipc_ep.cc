/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_iface.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/address.h"
#include "uct/gaudi/ipc/service.h"
#include "util/process.h"

#include <cstring>
#include <utility>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* A flush waits for a receiver, seconds. Not for long, since a peer may compute
 * meanwhile. */
constexpr double delivery_timeout = 0.2;

base::transfer_engine &transfers_of(const endpoint &ep)
{
    return *to_iface(ep.super.iface())->engine;
}

/* UCX's error handler reports a failure first: until it was called, messages
 * get UCS_ERR_NO_RESOURCE, as from a full ring. */
ucs_status_t failure_of(const endpoint &self)
{
    return self.super.is_failure_untold() ? UCS_ERR_NO_RESOURCE
                                          : self.super.status();
}

/* What a message may not overtake: a fence, a failure, and one that was
 * refused and waits. UCP sends without looking at what it has waiting, and
 * there can be room for a short message where there was none for a longer
 * one. */
ucs_status_t check_way(uct_ep_h ep)
{
    auto &self                 = *to_ep(ep);
    const ucs_status_t refused = base::check_process();
    if (ucs_unlikely(refused != UCS_OK)) {
        return refused;
    }
    if (ucs_unlikely(self.super.status() != UCS_OK)) {
        return failure_of(self);
    }
    if (ucs_unlikely(self.is_behind) && !self.pending.has_turn) {
        if (!self.pending.empty()) {
            return UCS_ERR_NO_RESOURCE;
        }
        self.is_behind = false;
    }
    if (ucs_unlikely(!transfers_of(self).is_past_fence())) {
        self.is_behind = true;
        return UCS_ERR_NO_RESOURCE;
    }
    const ucs_status_t failure = transfers_of(self).fenced_failure(self.domain);
    if (ucs_unlikely(failure != UCS_OK)) {
        self.super.fail(failure);
        return failure_of(self);
    }
    return UCS_OK;
}

/* Take note of what came of a message: a lost peer is a failure of the
 * endpoint, and so is one that could not be packed. A request has one turn, not
 * what its callbacks send. */
ucs_status_t note_result(uct_ep_h ep, ucs_status_t status)
{
    auto &self = *to_ep(ep);
    if (ucs_likely(status == UCS_OK)) {
        self.pending.has_turn = false;
        self.sent             = self.out->sent();
    } else if (status == UCS_ERR_NO_RESOURCE) {
        self.is_behind = true;
    } else {
        self.super.fail(status);
        return (status == UCS_ERR_ENDPOINT_TIMEOUT) ? failure_of(self) : status;
    }
    return status;
}

/* @return status */
ucs_status_t log_message(uct_ep_h ep, ucs_status_t status, bool is_short,
                         uint8_t id, size_t length)
{
    if (ucs_likely(status == UCS_OK)) {
        to_ep(ep)->super.note_sent(is_short, id, to_ep(ep)->out->last_sent(),
                                   length);
    }
    return status;
}

/* Whether a flush has to wait for the receiver of what was sent before it:
 * UCP closes an endpoint as soon as it is flushed, tells the peer so on
 * another way, and the peer drops what it has not read by then. One that is
 * called again, instead of waiting, is for what was sent since, too. */
bool awaits_delivery(endpoint &self, bool has_waited)
{
    if (!has_waited && (self.sent != self.awaited)) {
        self.flush_deadline = 0;
    }
    if (self.flush_deadline == 0) {
        if ((self.sent == self.awaited) || (self.super.status() != UCS_OK)) {
            return false;
        }
        self.awaited = self.sent;
        self.flush_deadline =
            ucs_get_time() + ucs_time_from_sec(delivery_timeout);
    }
    if ((self.super.status() == UCS_OK) &&
        !self.out->is_delivered(self.awaited) &&
        (ucs_get_time() < self.flush_deadline)) {
        return true;
    }
    self.flush_deadline = 0;
    return false;
}

/* Whether some kind could be: what waits is known to itself alone.
 * Transfers must not wait for the receiver of messages. */
bool has_a_resource(endpoint &self)
{
    if (self.super.status() != UCS_OK) {
        return !self.super.is_failure_untold();
    }
    return self.out->has_room() || transfers_of(self).may_start() ||
           ((self.flush_deadline != 0) &&
            (ucs_get_time() >= self.flush_deadline));
}

} // namespace

static void drop_unused_links(interface &iface)
{
    for (const auto &each : iface.links.take_unused()) {
        iface.engine->release(*each);
    }
}

/* UCP 1.13 looks after peers itself, but not while it waits for the answer to
 * its first request to connect (ucp_wireup_ep_check). */
void fail_lost_endpoints(interface &iface)
{
    const base::worker_block block(iface.super);
    endpoint *ep;
    ucs_list_for_each(ep, &iface.endpoints, all)
    {
        if ((ep->super.status() == UCS_OK) &&
            (ep->pending.empty() ? ep->out->is_lost() : ep->out->is_closed())) {
            ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
    }
    drop_unused_links(iface);
}

ucs_status_t endpoint::open(const uct_ep_params_t &params)
{
    machine_address machine;
    interface_address to;
    memcpy(&machine, params.dev_addr, sizeof(machine));
    memcpy(&to, params.iface_addr, sizeof(to));
    interface &iface = *to_iface(super.iface());
    const base::worker_block block(iface.super);
    const std::string why = find_obstacle(machine).why;
    if (!why.empty()) {
        ucs_debug("gaudi_ipc: process %u cannot be reached: %s", to.pid,
                  why.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    if ((to.process == util::process_identity()) &&
        !service::instance().has(to.number)) {
        ucs_debug("gaudi_ipc: the interface of this process is closed");
        return UCS_ERR_UNREACHABLE;
    }
    /* Not the lanes of links that have ended: the engine may be in progress on
     * the worker's thread, and this one be UCX's own. */
    const ucs_status_t opened =
        iface.links.find(to, iface.sizes, iface.wakes, out);
    if (opened != UCS_OK) {
        return opened;
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
        const std::shared_ptr<link> way = std::move(out);
        iface.links.put(*way);
        drop_unused_links(iface);
        if (way->is_closed()) { /* and has been dropped */
            iface.engine->release(*way);
        }
    }
    iface.engine->close(domain);
}

bool transport::is_connected(uct_ep_h ep, const uct_iface_addr_t *address)
{
    interface_address to;
    memcpy(&to, address, sizeof(to));
    return to_ep(ep)->out->address() == to;
}

/* --- active messages ---------------------------------------------------*/

ucs_status_t transport::ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                                    const void *payload,
                                    unsigned length) noexcept
{
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length + sizeof(header), 0, longest_message, "am_short");
    ucs_status_t status = check_way(ep);
    if (status == UCS_OK) {
        status =
            note_result(ep, to_ep(ep)->out->send(id, header, payload, length));
    }
    return log_message(ep, status, true, id, length + sizeof(header));
}

ucs_status_t transport::ep_am_short_iov(uct_ep_h ep, uint8_t id,
                                        const uct_iov_t *iov,
                                        size_t iovcnt) noexcept
{
    const size_t length = uct_iov_total_length(iov, iovcnt);
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length, 0, longest_message, "am_short_iov");
    ucs_status_t status = check_way(ep);
    if (status == UCS_OK) {
        status = note_result(ep, to_ep(ep)->out->send_iov(id, iov, iovcnt));
    }
    return log_message(ep, status, true, id, length);
}

ssize_t transport::ep_am_bcopy(uct_ep_h ep, uint8_t id,
                               uct_pack_callback_t pack, void *arg,
                               unsigned) noexcept
{
    UCT_CHECK_AM_ID(id);
    ucs_status_t status = check_way(ep);
    ssize_t length      = 0;
    if (ucs_likely(status == UCS_OK)) {
        status =
            note_result(ep, to_ep(ep)->out->send_packed(id, pack, arg, length));
    }
    status = log_message(ep, status, false, id, static_cast<size_t>(length));
    return (status == UCS_OK) ? length : static_cast<ssize_t>(status);
}

/* --- what waits --------------------------------------------------------*/

/* Once the error handler was called, requests of a failed endpoint are
 * dispatched, and return its status. */
bool transport::has_resources(const endpoint &ep)
{
    if (ep.super.status() != UCS_OK) {
        return !ep.super.is_failure_untold();
    }
    return (ep.flush_deadline == 0) && ep.out->has_room() &&
           transfers_of(ep).has_resources(ep.domain);
}

ucs_status_t transport::try_request(endpoint &ep, uct_pending_req_t *req)
{
    if (!has_a_resource(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return req->func(req);
}

ucs_status_t transport::check_peer(uct_ep_h ep)
{
    auto &self = *to_ep(ep);
    if (self.out->has_hung_up()) {
        self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return UCS_OK;
}

ucs_status_t transport::ep_flush(uct_ep_h ep, unsigned flags,
                                 uct_completion_t *comp) noexcept
{
    auto &self = *to_ep(ep);
    if (flags & UCT_FLUSH_FLAG_CANCEL) {
        transfers_of(self).cancel(self.domain, UCS_ERR_CANCELED);
    }
    /* What waits comes before the flush, unless that has waited, too. */
    if (self.pending.is_in_the_way()) {
        return UCS_ERR_NO_RESOURCE;
    }
    /* One request has one turn, whatever comes of it: UCP from 1.14 on
     * flushes again in the same callback, and what that completed would be
     * tried once more. */
    const bool has_waited = std::exchange(self.pending.has_turn, false);
    if (!(flags & UCT_FLUSH_FLAG_CANCEL) && awaits_delivery(self, has_waited)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return transfers_of(self).flush(&self.domain, comp);
}

} // namespace gaudi::ipc
