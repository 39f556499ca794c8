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

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/transfer/transfer_config.h"
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
    unsigned failed_pack;
};

struct interface {
    ~interface();
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    base::ucx_interface super;
    std::unique_ptr<base::transfer_engine> engine;
    uint64_t number   = 0; /**< see interface_address; 0: not open */
    interface_end end = std::make_shared<std::atomic<bool>>(false);
    ucs_queue_head_t pending; /**< requests that wait for resources */
    size_t max_bcopy       = 0;
    double bandwidth       = 0;     /**< bytes/second */
    bool bears_failed_pack = false; /**< see FAILED_PACK */
};

struct endpoint {
    ~endpoint();
    ucs_status_t open(const uct_ep_params_t &params);

    base::ucx_endpoint super;
    base::flush_domain domain{};
    interface_end peer; /**< of where it goes to; nullptr: not open */
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

/** Try pending requests while there is room. @return How many went through. */
unsigned dispatch_pending(interface *iface);

/** What UCX calls; base/ucx/transport.h says what is not UCT's. Remote
 *  addresses are addresses of this process, of host or device memory, and
 *  remote keys are not looked at. Each operation fails with
 *  UCS_ERR_ENDPOINT_TIMEOUT once the interface of its peer has closed. */
struct transport : base::transport_base {
    static constexpr char name[]   = "gaudi_cpy";
    static constexpr char title[]  = "gaudi_cpy transport";
    static constexpr char prefix[] = "GAUDI_COPY_";
    using config                   = interface_config;
    using interface                = copy::interface;
    using endpoint                 = copy::endpoint;
    static ucs_config_field_t config_table[];

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
    static base::callback<uct_iface_flush_func_t> iface_flush;
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static base::callback<uct_iface_event_fd_get_func_t> iface_event_fd_get;
    static base::callback<uct_iface_event_arm_func_t> iface_event_arm;

    /* Endpoints, see copy_ep.cc. */
    /* Done when they return, whatever the length. */
    static ucs_status_t ep_put_short(uct_ep_h ep, base::call_site caller,
                                     const void *buffer, unsigned length,
                                     uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept;
    static ucs_status_t ep_get_short(uct_ep_h ep, base::call_site caller,
                                     void *buffer, unsigned length,
                                     uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept;
    /* Through staging memory. UCP unpacks to device memory with memcpy and its
     * address as argument: DMA takes the place of that callback. */
    static base::callback<uct_ep_put_bcopy_func_t> ep_put_bcopy;
    static base::callback<uct_ep_get_bcopy_func_t> ep_get_bcopy;
    /* UCS_INPROGRESS; completed from progress. UCP does not expect UCS_OK. */
    static ucs_status_t zcopy(uct_ep_h ep, bool is_put, void *buffer,
                              size_t length, uint64_t remote_addr, uct_rkey_t,
                              uct_completion_t *comp);
    /* All that was started before, on this endpoint. */
    static base::callback<uct_ep_flush_func_t> ep_flush;
    /* Requests of all endpoints of an interface wait in one queue. */
    static base::callback<uct_ep_pending_add_func_t> ep_pending_add;
    static base::callback<uct_ep_pending_purge_func_t> ep_pending_purge;
};

} // namespace gaudi::copy
