/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interface and endpoint of transport gaudi_cpy: put and get between host and
 * device memory of this process.
 *
 * One thread at a time (UCT's rule). An interface belongs to a card, or
 * to none of a process that had none, and serves whatever card an address
 * belongs to. So one interface of a worker does all its work: the first one
 * reaches every worker of this process, and further ones, on which UCP would
 * split transfers that they cannot speed up, reach nobody.
 */
#pragma once

#include "uct/gaudi/base/transfer/rma.h"
#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"

#include <atomic>
#include <cstddef>
#include <memory>

namespace gaudi::copy {

/** Where an interface is. */
struct interface_address {
    uint64_t process; /**< util::process_identity() */
    uint64_t number;  /**< of the interface in its process */
};

/** Whether an interface has closed, for its endpoints, which may outlive it. */
using interface_end = std::shared_ptr<std::atomic<bool>>;

struct interface_config {
    uct_iface_config_t super;
    base::transfer_config transfers;
};

struct interface {
    ~interface();
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    base::ucx_interface super;
    std::unique_ptr<base::transfer_engine> engine;
    uint64_t number   = 0; /**< see interface_address; 0: not open */
    interface_end end = std::make_shared<std::atomic<bool>>(false);
    base::pending_requests pending;
    size_t max_bcopy = 0;
    double bandwidth = 0; /**< bytes/second */
};

struct endpoint {
    ~endpoint();
    ucs_status_t open(const uct_ep_params_t &params);

    base::ucx_endpoint super;
    base::flush_domain domain{};
    interface_end peer; /**< of where it goes to; nullptr: not open */
    base::pending_group pending;
};

inline interface *to_iface(uct_iface_h iface)
{
    return reinterpret_cast<interface *>(iface);
}

inline endpoint *to_ep(uct_ep_h ep)
{
    return reinterpret_cast<endpoint *>(ep);
}

/** Find an interface of this process that is open.
 *  @return nullptr when there is none. */
interface_end find_interface(const interface_address &address);

/** What UCX calls; base/ucx/transport.h says what is not UCT's. Remote
 *  addresses are addresses of this process, of host or device memory, and
 *  remote keys are not looked at. Each operation fails with
 *  UCS_ERR_ENDPOINT_TIMEOUT once the interface of its peer has closed. */
struct transport : base::transport_base,
                   base::rma<transport>,
                   base::pending_functions<transport> {
    static constexpr char name[]   = "gaudi_cpy";
    static constexpr char title[]  = "gaudi_cpy transport";
    static constexpr char prefix[] = "GAUDI_COPY_";
    using config                   = interface_config;
    using interface                = copy::interface;
    using endpoint                 = copy::endpoint;
    static ucs_config_field_t config_table[];

    static base::host_region *registration_of(uct_mem_h memh)
    {
        return base::registration_cache::instance().find_uncached(memh);
    }

    /* The transport: a device per card that is not lost. See copy_iface.cc. */
    static std::vector<base::transport_device> devices();
    static base::transport_properties properties(uct_iface_h iface);
    static base::transport_estimate
    estimate(uct_iface_h iface, const base::transport_question &asked);
    static constexpr char unreachable[] =
        "not in this process, or not by this interface of the worker";
    static bool is_connected(uct_ep_h ep, const uct_iface_addr_t *address);
    /* Within this process, and by the first interface of a worker alone. */
    static bool is_reachable(uct_iface_h iface, const uct_device_addr_t *,
                             const uct_iface_addr_t *address);

    /* Interfaces. The device address is empty, the other one an
     * interface_address. */
    static base::callback<uct_iface_get_device_address_func_t>
        iface_get_device_address;
    static base::callback<uct_iface_get_address_func_t> iface_get_address;
    /* Completions of transfers are what makes progress, and the events. */
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static base::callback<uct_iface_event_fd_get_func_t> iface_event_fd_get;
    static base::callback<uct_iface_event_arm_func_t> iface_event_arm;

    /* Endpoints, see copy_ep.cc. */
    /* How an endpoint has failed: the interface that it goes to has closed, for
     * one. */
    static ucs_status_t find_remote(uct_ep_h tl_ep, uct_rkey_t, base::side &,
                                    uct_completion_t *)
    {
        endpoint *ep = to_ep(tl_ep);
        if (ucs_unlikely(ep->peer->load(std::memory_order_relaxed))) {
            ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
        }
        return ep->super.status();
    }
    /* All that was started before, on this endpoint. */
    static base::callback<uct_ep_flush_func_t> ep_flush;
    static bool has_resources(const endpoint &ep)
    {
        return to_iface(ep.super.iface())->engine->has_resources();
    }
    static ucs_status_t try_request(endpoint &ep, uct_pending_req_t *req)
    {
        return has_resources(ep) ? req->func(req) : UCS_ERR_NO_RESOURCE;
    }
};

} // namespace gaudi::copy
