/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interface and endpoint of gaudi_ipc's second device, "boxes": active messages
 * to processes in other boxes, over the external ports of cards. UCP has what
 * it cannot do, puts and gets among it, done by messages.
 *
 * One thread at a time (UCT's rule). Each endpoint has a link of its own, and
 * an interface one for each endpoint that leads to it.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/absent.h"
#include "uct/gaudi/base/ucx/pending.h"
#include "uct/gaudi/base/ucx/transport.h"
#include "uct/gaudi/ipc/box_link.h"
#include "uct/gaudi/ipc/ipc_config.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/process.h"

#include <deque>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace gaudi::ipc {

/** How to reach an interface; travels as it is. */
struct box_address {
    uint64_t secret;   /**< random: who has the address may connect */
    uint64_t identity; /**< of the interface, random */
    uint32_t ipv4;     /**< of a port, in network order, */
    uint16_t port;     /**< of TCP there */
    uint16_t longest;  /**< message, units of 64 bytes */
    uint64_t unused[2];

    bool operator==(const box_address &) const = default;
};
/* An interface of the other device reads as many bytes of it, and this one of
 * that one's. */
static_assert(sizeof(box_address) == 40);

/** In machine_address::version of this device's addresses, which else are as
 *  the other one's. */
inline constexpr uint16_t box_version = wire_version | 0x4000;

/** Where an interface could be reached from other boxes: the first external
 *  port of a card that is up and has an IPv4 address.
 *  @param card_p  Filled on success only. @return Empty, or why there is none.
 */
std::string find_box_port(const base::held_cards &cards, base::card *&card_p,
                          in_addr &address_p);

struct box_interface {
    box_interface() { ucs_list_head_init(&endpoints); }
    ucs_status_t open(const uct_iface_params_t &params,
                      const interface_config &config);

    [[nodiscard]] bool is_inherited() const { return made_in.is_parent(); }
    unsigned accept();
    unsigned receive();
    unsigned send();

    /* Its transfers: there are none. */
    struct no_engine {
        void fence() {}
        void add_files() {}
        [[nodiscard]] size_t longest_list() const { return 0; }
    };

    base::ucx_interface super;
    util::owning_process made_in;
    base::held_cards cards;
    base::card *home = nullptr;
    no_engine nothing;
    no_engine *engine  = &nothing;
    size_t max_message = 0;
    unsigned max_poll  = 0;
    unsigned polls     = 0;
    double bandwidth   = 0;
    box_address own{};
    util::unique_fd listener;
    util::closed_in_children closed_in_children;
    std::list<std::unique_ptr<box_link>> incoming;
    base::pending_requests pending;
    ucs_list_link_t endpoints;
};

struct box_endpoint {
    ~box_endpoint();
    ucs_status_t open(const uct_ep_params_t &params);

    base::ucx_endpoint super;
    box_address peer{};
    std::unique_ptr<box_link> out; /* nullptr: not open */
    bool has_turn = false;         /* of a pending request */
    base::pending_group pending;
    std::deque<std::pair<uint64_t, uct_completion_t *>>
        flushes; /* of messages */
    ucs_list_link_t all;
};

inline box_interface *to_box_iface(uct_iface_h iface)
{
    return reinterpret_cast<box_interface *>(iface);
}

inline box_endpoint *to_box_ep(uct_ep_h ep)
{
    return reinterpret_cast<box_endpoint *>(ep);
}

/** UCT's operations, see base/ucx/transport.h. */
struct box_transport : base::transport_base,
                       base::pending_functions<box_transport> {
    static constexpr char name[]   = "gaudi_ipc";
    static constexpr char device[] = "boxes";
    using config                   = interface_config;
    using interface                = box_interface;
    using endpoint                 = box_endpoint;

    static bool is_of(const char *name);
    static base::transport_properties properties(uct_iface_h iface);
    static base::transport_estimate
    estimate(uct_iface_h iface, const base::transport_question &asked);
    static bool is_reachable(uct_iface_h iface,
                             const uct_device_addr_t *device_address,
                             const uct_iface_addr_t *address);
    static constexpr char unreachable[] = "of this box, or has no such device";
    static bool is_connected(uct_ep_h ep, const uct_iface_addr_t *address);
    static base::callback<uct_iface_get_device_address_func_t>
        iface_get_device_address;
    static base::callback<uct_iface_get_address_func_t> iface_get_address;
    static base::callback<uct_iface_flush_func_t> iface_flush;
    static base::callback<uct_iface_progress_func_t> iface_progress;
    static constexpr auto iface_event_fd_get =
        base::unsupported<uct_iface_event_fd_get_func_t>::op;
    static constexpr auto iface_event_arm =
        base::unsupported<uct_iface_event_arm_func_t>::op;

    static ucs_status_t check_peer(uct_ep_h ep);
    static base::callback<uct_ep_flush_func_t> ep_flush;
    static bool has_resources(const endpoint &ep);
    static ucs_status_t try_request(endpoint &ep, uct_pending_req_t *req);
    static base::callback<uct_ep_am_short_func_t> ep_am_short;
    static base::callback<uct_ep_am_short_iov_func_t> ep_am_short_iov;
    static base::callback<uct_ep_am_bcopy_func_t> ep_am_bcopy;

    /* No puts, no gets. */
    static constexpr auto ep_put_short =
        base::unsupported<uct_ep_put_short_func_t>::op;
    static constexpr auto ep_put_bcopy =
        base::unsupported<uct_ep_put_bcopy_func_t>::op;
    static constexpr auto ep_get_short =
        base::unsupported<uct_ep_get_short_func_t>::op;
    static constexpr auto ep_get_bcopy =
        base::unsupported<uct_ep_get_bcopy_func_t>::op;
    static ucs_status_t zcopy(uct_ep_h, bool, void *, size_t, uint64_t,
                              uct_rkey_t, uct_completion_t *)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    static ucs_status_t zcopy_list(uct_ep_h, bool, void *const *,
                                   const size_t *, const uint64_t *,
                                   const uct_rkey_t *, size_t,
                                   uct_completion_t *)
    {
        return UCS_ERR_UNSUPPORTED;
    }
};

} // namespace gaudi::ipc
