/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What interfaces and endpoints of both devices of gaudi_ipc do alike:
 * addresses, active messages, flushes, and requests that wait. A device's
 * transport derives from this, and has
 *
 *   static constexpr uint16_t version;           of its addresses
 *   static constexpr double delivery_patience;   seconds
 *   static constexpr bool shares_out;            others may have an endpoint's
 *                                                Out, which it ends
 *
 * its interfaces address(), which travels as it is.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/transfer/rma.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/ipc/ipc_config.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <cstring>
#include <memory>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

/** Of an interface. */
struct interface_base {
    interface_base() { ucs_list_head_init(&endpoints); }

    [[nodiscard]] bool is_inherited() const { return made_in.is_parent(); }

    /** What both are set to alike. An error is logged. */
    [[nodiscard]] ucs_status_t set_up(const uct_iface_params_t &params,
                                      const interface_config &config)
    {
        max_message = config.seg_size;
        max_bcopy   = config.transfers.engine.chunk_bytes;
        max_poll    = std::max(config.max_poll, 1u);
        cards       = base::card_table::instance().cards();
        return check_message_size(params, config);
    }

    /** What arming comes to when progress is to go on. With an interface that
     *  the worker does not progress UCP sleeps even so, and looks at it again
     *  upon an event (ucp_worker_iface_check_events_do of ucp_worker.c). */
    [[nodiscard]] ucs_status_t keep_awake()
    {
        if (super.is_progressed()) {
            return UCS_ERR_BUSY;
        }
        engine->wake();
        return UCS_OK;
    }

    base::ucx_interface super;
    util::owning_process made_in;
    base::held_cards cards; /* goes after the engine, which uses them */
    std::unique_ptr<base::transfer_engine> engine;
    size_t max_message = 0;       /* bytes of a bcopy active message */
    size_t max_bcopy   = 0;       /* bytes of a bcopy put or get */
    unsigned max_poll  = 0;       /* messages of one progress call */
    base::card *home   = nullptr; /* moves what no other card has to */
    double bandwidth   = 0;       /* of its links, bytes/second */
    unsigned polls     = 0;       /* calls of progress */
    util::unique_fd event_fd;     /* epoll of all that wakes */
    base::pending_requests pending;
    ucs_list_link_t endpoints; /* all there are; UCP may create some on another
                                  thread, with the worker blocked */
};

/** @tparam Out  The sending end of its messages: a message_writer with address,
 *                last_sent, has_room, sent, is_delivered and peer_alive as
 *                connection has them; and end, if it is shared. */
template <typename Transport, typename Out>
struct endpoint_of {
    ~endpoint_of();
    ucs_status_t open(const uct_ep_params_t &params);

    base::ucx_endpoint super;
    base::flush_domain domain{};
    std::shared_ptr<Out> out;     /* nullptr: not open */
    unsigned logged      = 0;     /* kinds of transfer that the log knows */
    ucs_time_t next_look = 0;     /* when to see whether the peer is alive */
    bool has_turn        = false; /* of a pending request, until it acts */
    bool is_behind = false;  /* a message was refused: others wait, too, while
                                there are pending requests */
    uint64_t sent       = 0; /* up to the last message of this endpoint */
    uint64_t awaited    = 0; /* messages that flushes wait, or waited for */
    ucs_time_t patience = 0; /* until when one waits; 0 when none does */
    base::pending_group pending;
    ucs_list_link_t all; /* in the list of its interface */
};

template <typename Transport, typename Out>
endpoint_of<Transport, Out>::~endpoint_of()
{
    if (out == nullptr) {
        return;
    }
    auto &iface = *Transport::to_iface(super.iface());
    Transport::ep_pending_purge(super.handle(), nullptr, nullptr);
    {
        const base::worker_block block(iface.super);
        ucs_list_del(&all);
        if constexpr (Transport::shares_out) {
            if (!iface.is_inherited()) {
                out->end();
            }
        }
        out.reset();
    }
    iface.engine->close(domain);
}

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
        ep.has_turn               = true;
        const ucs_status_t status = req->func(req);
        ep.has_turn               = false;
        return status;
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
        if (!self.has_turn && !self.pending.empty()) {
            return UCS_ERR_NO_RESOURCE;
        }
        /* One request has one turn, whatever comes of it: UCP from 1.14 on
         * flushes again in the same callback, and what that completed would be
         * tried once more. */
        self.has_turn = false;
        if (!(flags & UCT_FLUSH_FLAG_CANCEL) &&
            !to_iface(ep->iface)->is_inherited() && awaits_delivery(self)) {
            return UCS_ERR_NO_RESOURCE;
        }
        return engine_of(self).flush(&self.domain, comp);
    }

    static ucs_status_t iface_flush(uct_iface_h iface, unsigned,
                                    uct_completion_t *comp) noexcept
    {
        if (!to_iface(iface)->pending.empty()) {
            /* UCP takes the second for a failure, and asks without a
             * completion. */
            return (comp == nullptr) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
        }
        return to_iface(iface)->engine->flush(nullptr, comp);
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
        if (ucs_unlikely(self.is_behind) && !self.has_turn) {
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
            self.has_turn = false;
            self.sent     = self.out->sent();
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
     * another way, and the peer drops what it has not read by then. */
    static bool awaits_delivery(endpoint &self)
    {
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
