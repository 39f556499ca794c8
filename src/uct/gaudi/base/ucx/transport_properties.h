/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a transport says of itself, without what differs between releases.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <optional>
#include <string>
#include <vector>

namespace gaudi::base {

struct transport_device {
    std::string name;
    uct_device_type_t type;
    ucs_sys_device_t system_device;
};

/** What an interface says of itself. Bytes, seconds, bytes/second. */
struct transport_properties {
    size_t device_address_bytes = 0;
    size_t address_bytes        = 0;
    size_t max_bcopy            = 0; /**< of put and get */
    size_t max_message          = 0; /**< 0: no active messages */
    bool checks_peers           = false;
    double latency              = 0;
    double overhead             = 0;
    double bandwidth            = 0; /**< shared by all endpoints */
};

/** What UCX asks about; nullopt: it does not say. Between whose memory a put or
 *  get of another process is to go it says from 1.19 on. */
struct transport_question {
    std::optional<uct_ep_operation_t> operation;
    std::optional<ucs_memory_type_t> local;
    std::optional<ucs_memory_type_t> remote;

    [[nodiscard]] bool is_host_to_host() const
    {
        return (local == UCS_MEMORY_TYPE_HOST) &&
               (remote == UCS_MEMORY_TYPE_HOST);
    }
};

transport_question question_of(const uct_perf_attr_t &attr);

/** UCP up to 1.17 adds up a get's latency twice, for a request and a response:
 *  ucp_proto_rndv_get_common_init, UCP_PROTO_COMMON_INIT_FLAG_RESPONSE. */
inline constexpr double latencies_per_get =
    (UCT_API < UCT_VERSION(1, 18)) ? 2 : 1;

/** How fast an operation is; the same units. */
struct transport_estimate {
    double own_bandwidth    = 0; /**< of each endpoint */
    double shared_bandwidth = 0; /**< of all of them together */
    double latency          = 0;
    double send_overhead    = 0;
    double recv_overhead    = 0; /**< 0 for put and get: UCP asserts it */
};

void set_attributes(uct_iface_h iface, const transport_properties &own,
                    uct_iface_attr_t &attr);

/** Whether the alignment that an interface was asked to give active messages is
 *  one: UCX's own transports refuse others, and log them. It concerns messages
 *  in descriptors of UCT, of which there are none here.
 *  @param max_message  Bytes. */
ucs_status_t check_alignment(const uct_iface_params_t &params,
                             size_t max_message);

/** Fills those that UCX asks for. */
void set_estimate(const transport_estimate &own, uct_perf_attr_t &attr);

ucs_status_t set_devices(const std::vector<transport_device> &own,
                         uct_tl_device_resource_t **devices_p,
                         unsigned *num_devices_p);

} // namespace gaudi::base
