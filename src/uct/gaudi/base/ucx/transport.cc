/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/transport.h"

#include <algorithm>
#include <bit>

namespace gaudi::base {

void set_attributes(uct_iface_h iface, const transport_properties &own,
                    uct_iface_attr_t &attr)
{
    uct_base_iface_query(ucs_derived_of(iface, uct_base_iface_t), &attr);
    attr.device_addr_len = own.device_address_bytes;
    attr.iface_addr_len  = own.address_bytes;
    /* Never PUT_AM_ORDER, which is coming: messages overtake a card's copies.
     */
    attr.cap.flags = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                     UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                     UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT |
                     UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY |
                     UCT_IFACE_FLAG_PENDING |
                     UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    /* UCP wants both of a lane for rendezvous. */
    attr.cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                           UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;

    const auto set_limits = [&](auto &limits) {
        limits.max_short       = UINT_MAX;
        limits.max_bcopy       = own.max_bcopy;
        limits.min_zcopy       = 0;
        limits.max_zcopy       = SIZE_MAX;
        limits.opt_zcopy_align = 1;
        limits.align_mtu       = 1;
        limits.max_iov         = 1;
    };
    set_limits(attr.cap.put);
    set_limits(attr.cap.get);

    attr.cap.am.opt_zcopy_align = 1;
    attr.cap.am.align_mtu       = 1;
    if (own.max_message > 0) {
        attr.cap.flags |= UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY |
                          UCT_IFACE_FLAG_CB_SYNC;
        attr.cap.am.max_short = own.max_message;
        attr.cap.am.max_bcopy = own.max_message;
        attr.cap.am.max_iov   = SIZE_MAX;
    }
    if (own.checks_peers) {
        attr.cap.flags |= UCT_IFACE_FLAG_EP_CHECK;
    }

    attr.latency             = ucs_linear_func_make(own.latency, 0);
    attr.bandwidth.dedicated = 0;
    attr.bandwidth.shared    = own.bandwidth;
    attr.overhead            = own.overhead;
    attr.priority            = 0;
}

namespace {

/* What UCX 1.13 does not ask for. */
template <typename Attributes>
void set_new_estimates(const transport_estimate &own, Attributes &attr)
{
    if constexpr (requires { attr.path_bandwidth; }) {
        if (attr.field_mask & ::UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH) {
            attr.path_bandwidth.dedicated = own.own_bandwidth;
            attr.path_bandwidth.shared    = own.shared_bandwidth;
        }
    }
    if constexpr (requires { attr.flags; }) {
        if (attr.field_mask & ::UCT_PERF_ATTR_FIELD_FLAGS) {
            attr.flags = 0;
        }
    }
}

} // namespace

ucs_status_t check_alignment(const uct_iface_params_t &params,
                             size_t max_message)
{
    size_t alignment;
    size_t offset;
    const ucs_status_t status = uct_iface_param_am_alignment(
        &params, max_message, 0, 0, &alignment, &offset);
    if ((status == UCS_OK) && !std::has_single_bit(alignment)) {
        ucs_error("gaudi: active messages cannot be aligned to %zu bytes, "
                  "which is no power of 2",
                  alignment);
        return UCS_ERR_INVALID_PARAM;
    }
    return status;
}

transport_question question_of(const uct_perf_attr_t &attr)
{
    transport_question result;
    if (attr.field_mask & UCT_PERF_ATTR_FIELD_OPERATION) {
        result.operation = attr.operation;
    }
    if (attr.field_mask & UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE) {
        result.local = attr.local_memory_type;
    }
    if (attr.field_mask & UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE) {
        result.remote = attr.remote_memory_type;
    }
    return result;
}

void set_estimate(const transport_estimate &own, uct_perf_attr_t &attr)
{
    set_new_estimates(own, attr);
    const uint64_t fields = attr.field_mask;
    if (fields & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        attr.bandwidth.dedicated = own.own_bandwidth;
        attr.bandwidth.shared    = own.shared_bandwidth;
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr.send_pre_overhead = own.send_overhead;
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD) {
        attr.send_post_overhead = 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        attr.recv_overhead = own.recv_overhead;
    }
    if (fields & UCT_PERF_ATTR_FIELD_LATENCY) {
        attr.latency = ucs_linear_func_make(own.latency, 0);
    }
    if (fields & UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS) {
        attr.max_inflight_eps = SIZE_MAX;
    }
}

ucs_status_t set_devices(const std::vector<transport_device> &own,
                         uct_tl_device_resource_t **devices_p,
                         unsigned *num_devices_p)
{
    auto *devices = static_cast<uct_tl_device_resource_t *>(ucs_calloc(
        std::max<size_t>(own.size(), 1), sizeof(**devices_p), "gaudi devices"));
    if (devices == nullptr) {
        ucs_error("gaudi: out of host memory (raise its limit)");
        return UCS_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < own.size(); ++i) {
        ucs_snprintf_zero(devices[i].name, sizeof(devices[i].name), "%s",
                          own[i].name.c_str());
        devices[i].type       = own[i].type;
        devices[i].sys_device = own[i].system_device;
    }
    *devices_p     = devices;
    *num_devices_p = static_cast<unsigned>(own.size());
    return UCS_OK;
}

} // namespace gaudi::base
