/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interface and endpoint of transport gaudi_ipc: put, get and active messages
 * between the processes of a machine, and within one.
 *
 * One thread at a time (UCT's rule). An interface receives messages from the
 * links that others have opened to it, and has a transfer engine, which moves
 * bytes between memory of this process and what remote keys stand for. An
 * endpoint has a link to one interface; keys that are used on it have to be of
 * that process.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/transfer/rma.h"
#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/ipc/inbound.h"
#include "uct/gaudi/ipc/link.h"
#include "util/unique_fd.h"

#include <cstddef>
#include <memory>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

/** Longest active message, bytes. UCP ends the process when a packed key, with
 *  those of all other transports, does not fit in one. */
inline constexpr size_t longest_message = 8256;

/** What users set of interfaces. */
struct interface_config {
    uct_iface_config_t super;
    base::transfer_config transfers;
};

struct interface {
    interface() { ucs_list_head_init(&endpoints); }
    ~interface();
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    base::ucx_interface super;
    base::held_cards cards; /* goes after the engine, which uses them */
    std::unique_ptr<base::transfer_engine> engine;
    size_t max_bcopy = 0;       /* bytes of a bcopy put or get */
    base::card *home = nullptr; /* moves what no other card has to */
    double bandwidth = 0;       /* of its links, bytes/second */
    util::unique_fd event_fd;   /* epoll of all that wakes */
    base::pending_requests pending;
    ucs_list_link_t endpoints; /* all there are; UCP may create some on another
                                  thread, with the worker blocked */
    link_options sizes{};      /* of its links */
    std::shared_ptr<event> wakes;
    std::shared_ptr<receiver> inbox;
    link_table links;             /* of the endpoints */
    unsigned turns_since_end = 0; /* of a link, without looking at it */
};

struct endpoint {
    ~endpoint();
    ucs_status_t open(const uct_ep_params_t &params);

    base::ucx_endpoint super;
    base::flush_domain domain{};
    std::shared_ptr<link> out; /* nullptr: not open */
    unsigned logged = 0;       /* kinds of transfer that the log knows */
    bool is_behind  = false;   /* a message was refused: others wait, too, while
                                  there are pending requests */
    uint64_t sent    = 0;      /* up to the last message of this endpoint */
    uint64_t awaited = 0;      /* messages that flushes wait, or waited for */
    ucs_time_t flush_deadline = 0; /* of one that waits; 0: none does */
    base::pending_group pending;
    ucs_list_link_t all; /* in the list of its interface */
};

inline interface *to_iface(uct_iface_h iface)
{
    return reinterpret_cast<interface *>(iface);
}

inline endpoint *to_ep(uct_ep_h ep)
{
    return reinterpret_cast<endpoint *>(ep);
}

/** Let the endpoints fail whose peers have ended without closing their
 *  interfaces; with requests that wait, those whose peers have closed them,
 *  too: they would wait for good. */
void fail_lost_endpoints(interface &iface);

/** UCT's operations, see base/ucx/transport.h for the others. */
struct transport : base::transport_base,
                   base::rma<transport>,
                   base::pending_functions<transport> {
    static constexpr char name[]   = "gaudi_ipc";
    static constexpr char title[]  = "gaudi_ipc transport";
    static constexpr char prefix[] = "GAUDI_IPC_";
    using config                   = interface_config;
    using interface                = ipc::interface;
    using endpoint                 = ipc::endpoint;
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
    static base::callback<uct_iface_get_device_address_func_t>
        iface_get_device_address;
    static base::callback<uct_iface_get_address_func_t> iface_get_address;
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static base::callback<uct_iface_event_fd_get_func_t> iface_event_fd_get;
    static base::callback<uct_iface_event_arm_func_t> iface_event_arm;

    /* ipc_ep.cc */
    static bool is_connected(uct_ep_h ep, const uct_iface_addr_t *address);
    static ucs_status_t check_peer(uct_ep_h ep);
    static base::callback<uct_ep_am_short_func_t> ep_am_short;
    static base::callback<uct_ep_am_short_iov_func_t> ep_am_short_iov;
    static base::callback<uct_ep_am_bcopy_func_t> ep_am_bcopy;
    static base::callback<uct_ep_flush_func_t> ep_flush;
    static bool has_resources(const endpoint &ep);
    static ucs_status_t try_request(endpoint &ep, uct_pending_req_t *req);

    /* ipc_rma.cc */
    static ucs_status_t find_remote(uct_ep_h ep, uct_rkey_t rkey,
                                    base::side &remote, uct_completion_t *comp);
    /** Once for every kind of transfer of an endpoint. */
    static void log_way(uct_ep_h ep, bool is_put, const base::side &local,
                        size_t length, const base::side &remote);
};

} // namespace gaudi::ipc
