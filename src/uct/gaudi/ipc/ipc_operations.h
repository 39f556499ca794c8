/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCT's operations of both devices of gaudi_ipc do alike: addresses,
 * active messages, flushes, and requests that wait. A device's transport
 * derives from this, and has what ipc_endpoint.h asks for, and
 *
 *   static constexpr uint16_t version;           of its addresses
 *   static constexpr double delivery_patience;   seconds
 *   static constexpr bool posts_messages;        which are there later
 *
 * its interfaces address(), which travels as it is.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/transfer/rma.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/ipc/ipc_endpoint.h"
#include "uct/gaudi/ipc/process/process_id.h"

#include <cstring>
#include <utility>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

template <typename Transport, typename Interface, typename Endpoint>
struct endpoint_operations : base::transport_base,
                             base::rma<Transport>,
                             base::pending_functions<Transport> {
    using interface = Interface;
    using endpoint  = Endpoint;

    static interface *to_iface(uct_iface_h iface)
    {
        return reinterpret_cast<interface *>(iface);
    }
    static endpoint *to_ep(uct_ep_h ep)
    {
        return reinterpret_cast<endpoint *>(ep);
    }

    /* --- addresses ---------------------------------------------------------*/

    static ucs_status_t
    iface_get_device_address(uct_iface_h, uct_device_addr_t *address) noexcept
    {
        return base::guarded([&] {
            machine_address own = own_machine();
            own.version         = Transport::version;
            std::memcpy(address, &own, sizeof(own));
            return UCS_OK;
        });
    }

    static ucs_status_t iface_get_address(uct_iface_h iface,
                                          uct_iface_addr_t *address) noexcept
    {
        const auto own = to_iface(iface)->address();
        std::memcpy(address, &own, sizeof(own));
        return UCS_OK;
    }

    static bool is_connected(uct_ep_h ep, const uct_iface_addr_t *address)
    {
        auto to = to_ep(ep)->out->address();
        std::memcpy(&to, address, sizeof(to));
        return to_ep(ep)->out->address() == to;
    }

    /* --- active messages ---------------------------------------------------*/

    static ucs_status_t ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                                    const void *payload,
                                    unsigned length) noexcept
    {
        UCT_CHECK_AM_ID(id);
        UCT_CHECK_LENGTH(length + sizeof(header), 0,
                         to_iface(ep->iface)->max_message, "am_short");
        ucs_status_t status = check_way(ep);
        if (status == UCS_OK) {
            status = note_result(
                ep, to_ep(ep)->out->send(id, header, payload, length));
        }
        return finish(ep, status, true, id, length + sizeof(header));
    }

    static ucs_status_t ep_am_short_iov(uct_ep_h ep, uint8_t id,
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

    static ssize_t ep_am_bcopy(uct_ep_h ep, uint8_t id,
                               uct_pack_callback_t pack, void *arg,
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
                ep, to_ep(ep)->out->send_packed(id, pack, arg, length));
        }
        if (ucs_unlikely(length < 0)) {
            return status; /* lost it is only when the callback was called */
        }
        status = finish(ep, status, false, id, static_cast<size_t>(length));
        return (status == UCS_OK) ? length : static_cast<ssize_t>(status);
    }

    /* --- what waits --------------------------------------------------------*/

    /* A failed endpoint lets all through, so that they get its status. */
    static bool has_resources(const endpoint &ep)
    {
        return (ep.patience == 0) &&
               ((ep.super.status() != UCS_OK) ||
                (ep.out->has_room() && engine_of(ep).has_resources()));
    }

    static ucs_status_t try_request(endpoint &ep, uct_pending_req_t *req)
    {
        if (!has_a_resource(ep)) {
            return UCS_ERR_NO_RESOURCE;
        }
        return req->func(req);
    }

    static ucs_status_t check_peer(uct_ep_h ep)
    {
        auto &self = *to_ep(ep);
        if (!to_iface(ep->iface)->is_inherited() && !self.out->peer_alive()) {
            self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
        return UCS_OK;
    }

    static ucs_status_t ep_flush(uct_ep_h ep, unsigned flags,
                                 uct_completion_t *comp) noexcept
    {
        auto &self = *to_ep(ep);
        if (flags & UCT_FLUSH_FLAG_CANCEL) {
            engine_of(self).cancel(self.domain, UCS_ERR_CANCELED);
        }
        /* What waits comes before the flush, unless that has waited, too. */
        if (self.pending.is_in_the_way()) {
            return UCS_ERR_NO_RESOURCE;
        }
        /* One request has one turn, whatever comes of it: UCP from 1.14 on
         * flushes again in the same callback, and what that completed would be
         * tried once more. */
        const bool has_waited = std::exchange(self.pending.has_turn, false);
        if (!(flags & UCT_FLUSH_FLAG_CANCEL) &&
            !to_iface(ep->iface)->is_inherited() &&
            awaits_delivery(self, has_waited)) {
            return UCS_ERR_NO_RESOURCE;
        }
        return engine_of(self).flush(&self.domain, comp);
    }

    static ucs_status_t iface_flush(uct_iface_h iface, unsigned,
                                    uct_completion_t *comp) noexcept
    {
        interface &self = *to_iface(iface);
        if (!self.pending.empty() || has_messages_under_way(self)) {
            /* UCP takes the second for a failure, and asks without a
             * completion. */
            return (comp == nullptr) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
        }
        return self.engine->flush(nullptr, comp);
    }

protected:
    /** Of an interface, behind what has made room. */
    static unsigned progress_waiting(interface &self)
    {
        unsigned count = 0;
        if (!self.pending.empty()) {
            count += base::pending_functions<Transport>::dispatch(self.pending);
        }
        if (ucs_unlikely(self.super.has_failures())) {
            count += self.super.report_failures();
        }
        return count;
    }

    /** Progress of an interface's transfers. */
    static unsigned progress_transfers(interface &self)
    {
        unsigned count = self.engine->progress();
        while (base::flush_domain *of = self.engine->take_failed()) {
            const base::worker_block block(self.super);
            ucs_container_of(of, endpoint, domain)->super.fail(of->failure);
        }
        return count;
    }

private:
    /* How often a sender asks the kernel for its peer. */
    static constexpr double look_every_ms = 50;

    static bool has_messages_under_way(interface &self)
    {
        if constexpr (Transport::posts_messages) {
            if (!self.is_inherited()) {
                const base::worker_block block(self.super);
                endpoint *ep;
                ucs_list_for_each(ep, &self.endpoints, all)
                {
                    if ((ep->super.status() == UCS_OK) &&
                        !ep->out->is_delivered(ep->sent)) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    static base::transfer_engine &engine_of(const endpoint &ep)
    {
        return *to_iface(ep.super.iface())->engine;
    }

    /* What a message may not overtake: a fence, a failure, and one that was
     * refused and waits. UCP sends without looking at what it has waiting, and
     * there can be room for a short message where there was none for a longer
     * one. */
    static ucs_status_t check_way(uct_ep_h ep)
    {
        auto &self = *to_ep(ep);
        if (ucs_unlikely(self.super.status() != UCS_OK)) {
            return self.super.status();
        }
        if (ucs_unlikely(self.is_behind) && !self.pending.has_turn) {
            if (!self.pending.empty()) {
                return UCS_ERR_NO_RESOURCE;
            }
            self.is_behind = false;
        }
        if (ucs_unlikely(!engine_of(self).is_past_fence())) {
            self.is_behind = true;
            return UCS_ERR_NO_RESOURCE;
        }
        const ucs_status_t failure =
            engine_of(self).fenced_failure(self.domain);
        if (ucs_unlikely(failure != UCS_OK)) {
            self.super.fail(failure);
        }
        return failure;
    }

    /* Take note of what came of a message: a lost peer is a failure of the
     * endpoint. A request has one turn, not what its callbacks send. */
    static ucs_status_t note_result(uct_ep_h ep, ucs_status_t status)
    {
        auto &self = *to_ep(ep);
        if (ucs_likely(status == UCS_OK)) {
            self.pending.has_turn = false;
            self.sent             = self.out->sent();
        } else if (status == UCS_ERR_NO_RESOURCE) {
            self.is_behind = true;
        } else if (status == UCS_ERR_ENDPOINT_TIMEOUT) {
            self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
        return status;
    }

    /* UCX wants to hear of a failure from its handler first: until then
     * messages are taken, and lost. */
    static bool is_untold(uct_ep_h ep)
    {
        return to_ep(ep)->super.is_failure_untold() &&
               !to_iface(ep->iface)->is_inherited();
    }

    /* The result of a message that has no other. */
    static ucs_status_t finish(uct_ep_h ep, ucs_status_t status, bool is_short,
                               uint8_t id, size_t length)
    {
        if (ucs_unlikely(status != UCS_OK)) {
            return is_untold(ep) ? UCS_OK : status;
        }
        to_ep(ep)->super.note_sent(is_short, id, to_ep(ep)->out->last_sent(),
                                   length);
        return UCS_OK;
    }

    /* UCP's keepalive, once it knows the other endpoint, is a buffered message:
     * there may be room for it, whether its reader is alive or not. */
    static bool is_peer_lost(endpoint &self)
    {
        const ucs_time_t now = ucs_get_time();
        if (ucs_likely(now < self.next_look)) {
            return false;
        }
        self.next_look = now + ucs_time_from_msec(look_every_ms);
        return !self.out->peer_alive();
    }

    /* Whether a flush has to wait for the receiver of what was sent before it:
     * UCP closes an endpoint as soon as it is flushed, tells the peer so on
     * another way, and the peer drops what it has not read by then. One that is
     * called again, instead of waiting, is for what was sent since, too. */
    static bool awaits_delivery(endpoint &self, bool has_waited)
    {
        if (!has_waited && (self.sent != self.awaited)) {
            self.patience = 0;
        }
        if (self.patience == 0) {
            if ((self.sent == self.awaited) ||
                (self.super.status() != UCS_OK)) {
                return false;
            }
            self.awaited  = self.sent;
            self.patience = ucs_get_time() +
                            ucs_time_from_sec(Transport::delivery_patience);
        }
        if ((self.super.status() == UCS_OK) &&
            !self.out->is_delivered(self.awaited) &&
            (ucs_get_time() < self.patience)) {
            return true;
        }
        self.patience = 0;
        return false;
    }

    /* Whether some kind could be: what waits is known to itself alone.
     * Transfers must not wait for the receiver of messages. */
    static bool has_a_resource(endpoint &self)
    {
        return (self.super.status() != UCS_OK) || self.out->has_room() ||
               engine_of(self).has_resources() ||
               ((self.patience != 0) && (ucs_get_time() >= self.patience));
    }
};

} // namespace gaudi::ipc
