/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What interfaces and endpoints of both devices of gaudi_ipc have alike. A
 * device's transport has
 *
 *   static constexpr bool shares_out;            others may have an endpoint's
 *                                                Out, which it ends
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/ipc/ipc_config.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <algorithm>
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
    std::shared_ptr<Out> out; /* nullptr: not open */
    unsigned logged      = 0; /* kinds of transfer that the log knows */
    ucs_time_t next_look = 0; /* when to see whether the peer is alive */
    bool is_behind = false;   /* a message was refused: others wait, too, while
                                 there are pending requests */
    uint64_t sent       = 0;  /* up to the last message of this endpoint */
    uint64_t awaited    = 0;  /* messages that flushes wait, or waited for */
    ucs_time_t patience = 0;  /* until when one waits; 0 when none does */
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

} // namespace gaudi::ipc
