/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages: into the peer's mailbox. */
#include "uct/gaudi/ipc/ipc_iface.h"

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* How often a sender asks the kernel for its peer. */
constexpr double look_every_ms = 50;

/* What a message may not overtake: a fence, a failure, and one that was refused
 * and waits. UCP sends without looking at what it has waiting, and there can be
 * room for a short message where there was none for a longer one. */
ucs_status_t check_way(uct_ep_h ep)
{
    endpoint &self = *to_ep(ep);
    if (ucs_unlikely(self.super.status() != UCS_OK)) {
        return self.super.status();
    }
    if (ucs_unlikely(self.is_behind) && !self.has_turn) {
        if (!self.pending.empty()) {
            return UCS_ERR_NO_RESOURCE;
        }
        self.is_behind = false;
    }
    base::transfer_engine &engine = *to_iface(ep->iface)->engine;
    if (ucs_unlikely(!engine.is_past_fence())) {
        self.is_behind = true;
        return UCS_ERR_NO_RESOURCE;
    }
    const ucs_status_t failure = engine.fenced_failure(self.domain);
    if (ucs_unlikely(failure != UCS_OK)) {
        self.super.fail(failure);
    }
    return failure;
}

/* Take note of what came of a message: a lost peer is a failure of the
 * endpoint. A request has one turn, not what its callbacks send. */
ucs_status_t note_result(uct_ep_h ep, ucs_status_t status)
{
    endpoint &self = *to_ep(ep);
    if (ucs_likely(status == UCS_OK)) {
        self.has_turn = false;
        self.sent     = self.out->sent();
    } else if (status == UCS_ERR_NO_RESOURCE) {
        self.is_behind = true;
    } else if (status == UCS_ERR_ENDPOINT_TIMEOUT) {
        self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return status;
}

/* UCX wants to hear of a failure from its handler first: until then messages
 * are taken, and lost. */
bool is_untold(uct_ep_h ep)
{
    return to_ep(ep)->super.is_failure_untold() &&
           !to_iface(ep->iface)->is_inherited();
}

/* The result of a message that has no other. */
ucs_status_t finish(uct_ep_h ep, ucs_status_t status, bool is_short, uint8_t id,
                    size_t length)
{
    if (ucs_unlikely(status != UCS_OK)) {
        return is_untold(ep) ? UCS_OK : status;
    }
    to_ep(ep)->super.note_sent(is_short, id, to_ep(ep)->out->last_sent(),
                               length);
    return UCS_OK;
}

/* UCP's keepalive, once it knows the other endpoint, is a buffered message: a
 * ring has room for it, whether its reader is alive or not. */
bool is_peer_lost(endpoint &self)
{
    const ucs_time_t now = ucs_get_time();
    if (ucs_likely(now < self.next_look)) {
        return false;
    }
    self.next_look = now + ucs_time_from_msec(look_every_ms);
    return !self.out->peer_alive();
}

} // namespace

ucs_status_t transport::ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                                    const void *payload,
                                    unsigned length) noexcept
{
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length + sizeof(header), 0,
                     to_iface(ep->iface)->max_message, "am_short");
    ucs_status_t status = check_way(ep);
    if (status == UCS_OK) {
        status =
            note_result(ep, to_ep(ep)->out->send(id, header, payload, length));
    }
    return finish(ep, status, true, id, length + sizeof(header));
}

ucs_status_t transport::ep_am_short_iov(uct_ep_h ep, uint8_t id,
                                        const uct_iov_t *iov,
                                        size_t iovcnt) noexcept
{
    const size_t length = uct_iov_total_length(iov, iovcnt);
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length, 0, to_iface(ep->iface)->max_message,
                     "am_short_iov");
    ucs_status_t status = check_way(ep);
    if (status == UCS_OK) {
        status = note_result(ep, to_ep(ep)->out->send_iov(id, iov, iovcnt));
    }
    return finish(ep, status, true, id, length);
}

ssize_t transport::ep_am_bcopy(uct_ep_h ep, uint8_t id,
                               uct_pack_callback_t pack_cb, void *arg,
                               unsigned) noexcept
{
    UCT_CHECK_AM_ID(id);
    ucs_status_t status = check_way(ep);
    ssize_t length      = -1; /* until it is packed */
    if ((status == UCS_OK) && ucs_unlikely(is_peer_lost(*to_ep(ep)))) {
        status = note_result(ep, UCS_ERR_ENDPOINT_TIMEOUT);
    }
    if (ucs_likely(status == UCS_OK) || is_untold(ep)) {
        status = note_result(
            ep, to_ep(ep)->out->send_packed(id, pack_cb, arg, length));
    }
    if (ucs_unlikely(length < 0)) {
        return status; /* lost it is only when the callback has been called */
    }
    status = finish(ep, status, false, id, static_cast<size_t>(length));
    return (status == UCS_OK) ? length : static_cast<ssize_t>(status);
}

} // namespace gaudi::ipc
