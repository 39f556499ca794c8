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

#include "uct/gaudi/base/cards/card_hold.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/messages/connection.h"
#include "uct/gaudi/ipc/messages/mailbox.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "uct/gaudi/ipc/process/remote_process.h"

extern "C" {
#include <ucs/datastruct/arbiter.h>
}

#include <atomic>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace gaudi::ipc {

/** What an interface has in C++. */
struct iface_state {
    ~iface_state();

    unsigned generation = util::process_generation(); /* that opened it */
    base::card_hold cards; /* goes after the engine, which uses them: the
                              memory domain may have none */
    std::unique_ptr<mailbox> inbox;
    std::unique_ptr<base::transfer_engine> engine;
    size_t max_message   = 0;       /* bytes of a bcopy active message */
    size_t max_bcopy     = 0;       /* bytes of a bcopy put or get */
    unsigned max_poll    = 0;       /* messages of one progress call */
    base::card *home     = nullptr; /* moves what no other card has to */
    double bandwidth     = 0;       /* of its link, bytes/second */
    int event_fd         = -1; /* epoll of inbox and engine, when asked for */
    unsigned polls       = 0;  /* since the clock was last looked at */
    ucs_time_t next_look = 0;  /* when to see whether peers are alive */
    int ended_fd         = -1; /* epoll: readable when a peer has ended */
    std::atomic<bool> has_unwatched{false}; /* some peer is not in it */
    uint64_t invalidations = 0;             /* see open_invalidations */
    connection_table connections;           /* of the endpoints */
    ucs_list_link_t endpoints; /* all there are; UCP may create some on another
                                  thread, with the worker blocked */
    ucs_list_link_t failed;    /* endpoints whose failure is to be told */
};

/** What an endpoint has in C++. */
struct ep_state {
    base::flush_domain domain;
    std::shared_ptr<remote_process> peer;
    std::shared_ptr<connection> out; /* of all endpoints to its mailbox */
    ucs_status_t status  = UCS_OK; /* what operations return; else it failed */
    unsigned told        = 0;      /* kinds of transfer that the log knows */
    ucs_time_t next_look = 0;      /* when to see whether the peer is alive */
    bool has_turn        = false;  /* a pending request is being tried, and
                                      has done nothing yet */
    bool is_behind = false;        /* a message was refused: others wait, too,
                                      while there are pending requests */
    uint64_t sent       = 0;       /* up to the last message of this endpoint */
    uint64_t awaited    = 0; /* messages that flushes wait, or waited for */
    ucs_time_t patience = 0; /* until when one waits; 0 when none does */
};

} // namespace gaudi::ipc

extern "C" {

extern uct_tl_t uct_gaudi_ipc_tl;

/* UCX allocates and destroys these: C structs with a pointer to the C++ part.
 */
typedef struct uct_gaudi_ipc_iface {
    uct_base_iface_t super;
    gaudi::ipc::iface_state *state;
    ucs_arbiter_t pending; /**< requests that wait for resources */
} uct_gaudi_ipc_iface_t;

typedef struct uct_gaudi_ipc_ep {
    uct_base_ep_t super;
    gaudi::ipc::ep_state *state;
    ucs_arbiter_group_t pending;
    ucs_list_link_t all;    /**< in the list of its interface */
    ucs_list_link_t failed; /**< self-linked unless its failure is to be told */
} uct_gaudi_ipc_ep_t;
}

static_assert(std::is_standard_layout_v<uct_gaudi_ipc_iface_t> &&
              (offsetof(uct_gaudi_ipc_iface_t, super) == 0));
static_assert(std::is_standard_layout_v<uct_gaudi_ipc_ep_t> &&
              (offsetof(uct_gaudi_ipc_ep_t, super) == 0));

namespace gaudi::ipc {

inline uct_gaudi_ipc_iface_t *to_iface(uct_iface_h iface)
{
    return reinterpret_cast<uct_gaudi_ipc_iface_t *>(iface);
}

inline uct_gaudi_ipc_ep_t *to_ep(uct_ep_h ep)
{
    return reinterpret_cast<uct_gaudi_ipc_ep_t *>(ep);
}

/** Try pending requests while there is room. @return How many went through. */
unsigned dispatch_pending(uct_gaudi_ipc_iface_t *iface);

/** Tell UCX of endpoints that failed. @return How many. */
unsigned report_failures(uct_gaudi_ipc_iface_t *iface);

/** Let the endpoints fail whose peers were killed, or have ended without
 *  closing their interfaces. A system call. */
void find_lost_peers(uct_gaudi_ipc_iface_t *iface);

/* Endpoint operations, see ipc_ep.cc (endpoints, flush, pending), ipc_am.cc
 * (active messages) and ipc_rma.cc (put and get). */
ucs_status_t ep_create(const uct_ep_params_t *params, uct_ep_h *ep_p) noexcept;
void ep_destroy(uct_ep_h ep) noexcept;
ucs_status_t ep_check(uct_ep_h ep, unsigned flags,
                      uct_completion_t *comp) noexcept;
ucs_status_t ep_flush(uct_ep_h ep, unsigned flags,
                      uct_completion_t *comp) noexcept;
ucs_status_t ep_fence(uct_ep_h ep, unsigned flags) noexcept;
ucs_status_t ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                            unsigned flags) noexcept;
void ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                      void *arg) noexcept;

/** Let an endpoint fail: operations return the status from now on, and UCX is
 *  told from progress. */
void fail(uct_ep_h ep, ucs_status_t status);

ucs_status_t ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                         const void *payload, unsigned length) noexcept;
ucs_status_t ep_am_short_iov(uct_ep_h ep, uint8_t id, const uct_iov_t *iov,
                             size_t iovcnt) noexcept;
ssize_t ep_am_bcopy(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack_cb,
                    void *arg, unsigned flags) noexcept;

ucs_status_t ep_put_short(uct_ep_h ep, const void *buffer, unsigned length,
                          uint64_t remote_addr, uct_rkey_t rkey) noexcept;
ssize_t ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void *arg,
                     uint64_t remote_addr, uct_rkey_t rkey) noexcept;
ucs_status_t ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                          uint64_t remote_addr, uct_rkey_t rkey,
                          uct_completion_t *comp) noexcept;
ucs_status_t ep_get_short(uct_ep_h ep, void *buffer, unsigned length,
                          uint64_t remote_addr, uct_rkey_t rkey) noexcept;
ucs_status_t ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack_cb,
                          void *arg, size_t length, uint64_t remote_addr,
                          uct_rkey_t rkey, uct_completion_t *comp) noexcept;
ucs_status_t ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                          uint64_t remote_addr, uct_rkey_t rkey,
                          uct_completion_t *comp) noexcept;

} // namespace gaudi::ipc
