/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a transport is to UCX, and how UCX gets to know of it and its component.
 *
 * A transport is a struct of static functions, derived from transport_base.
 * Those whose parameters are the same in all releases go to UCX's tables as
 * they are, named as there; active messages may be left out. Beside them it
 * has:
 *
 *   static constexpr char name[];
 *   static constexpr char title[], prefix[];  of its variables
 *   struct config;                     begins with uct_iface_config_t
 *   static ucs_config_field_t config_table[];
 *   static std::vector<transport_device> devices();
 *   static transport_properties properties(uct_iface_h);
 *   static transport_estimate estimate(uct_iface_h,
 *                                      const transport_question &);
 *   static bool is_reachable(uct_iface_h, const uct_device_addr_t *,
 *                            const uct_iface_addr_t *);
 *   static constexpr char unreachable[];  why others are not reachable
 *   static bool is_connected(uct_ep_h, const uct_iface_addr_t *);
 *   static ucs_status_t check_peer(uct_ep_h);  lets an endpoint fail whose peer
 *                                      is gone; if it can
 *   static ucs_status_t zcopy(uct_ep_h, bool is_put, void *, size_t length,
 *                             uct_mem_h, uint64_t remote_addr, uct_rkey_t,
 *                             uct_completion_t *);  put or get, of one piece
 *   using interface, endpoint;         begin with `super`, a ucx_interface or
 *                                      ucx_endpoint; open() of both has to
 *                                      succeed, or they are destroyed again
 *
 * An interface has the transfer engine that it moves bytes with, `engine`, and
 * what waits for room, `pending`.
 */
#pragma once

#include "uct/gaudi/base/ucx/component.h"
#include "uct/gaudi/base/ucx/interface.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/trace.h"
#include "uct/gaudi/base/ucx/transport_properties.h"

#include <memory>

#include <sched.h>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

/** Whether UCX has a module of its own for Gaudi memory. */
inline constexpr bool ucx_has_own_module = UCT_API >= UCT_VERSION(1, 21);

struct transport_base {
    /** Whether it moves bytes between host memory of two processes. */
    static bool moves_host(uct_iface_h) { return true; }
    static constexpr auto ep_am_short = unsupported<uct_ep_am_short_func_t>::op;
    static constexpr auto ep_am_short_iov =
        unsupported<uct_ep_am_short_iov_func_t>::op;
    static constexpr auto ep_am_bcopy = unsupported<uct_ep_am_bcopy_func_t>::op;
};

/** UCX's zero copies, of one piece, by that of a transport. */
template <typename Transport, bool is_put>
ucs_status_t zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                   uint64_t remote_addr, uct_rkey_t rkey,
                   uct_completion_t *comp) noexcept
{
    UCT_CHECK_IOV_SIZE(iovcnt, 1ul, Transport::name);
    const bool empty = (iovcnt == 0);
    return Transport::zcopy(ep, is_put, empty ? nullptr : iov->buffer,
                            empty ? 0 : uct_iov_get_length(iov),
                            empty ? UCT_MEM_HANDLE_NULL : iov->memh,
                            remote_addr, rkey, comp);
}

/** UCX's operations of a transport, by its functions. */
template <typename Transport>
struct transport_functions {
    static auto &interface_of(uct_iface_h iface)
    {
        return *reinterpret_cast<typename Transport::interface *>(iface);
    }

    static ucs_status_t query_devices(uct_md_h,
                                      uct_tl_device_resource_t **devices_p,
                                      unsigned *num_devices_p) noexcept
    {
        return guarded_entry([&] {
            return set_devices(Transport::devices(), devices_p, num_devices_p);
        });
    }

    static ucs_status_t iface_open(uct_md_h md, uct_worker_h worker,
                                   const uct_iface_params_t *params,
                                   const uct_iface_config_t *config,
                                   uct_iface_h *iface_p) noexcept
    {
        using interface = typename Transport::interface;
        static_assert(begins_as_in_ucx<interface>);
        *iface_p = nullptr;
        return guarded_entry([&] {
            auto made = std::make_unique<interface>();
            ucs_status_t status =
                made->super.init(operations, internal_operations, md, worker,
                                 *params, *config, Transport::name);
            if (status == UCS_OK) {
                status = made->open(
                    *params,
                    *reinterpret_cast<const typename Transport::config *>(
                        config));
            }
            if (status == UCS_OK) {
                *iface_p = made.release()->super.handle();
            }
            return status;
        });
    }

    static void iface_close(uct_iface_h iface) noexcept
    {
        uct_base_iface_progress_disable(iface,
                                        UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        if (!util::is_cut_off()) {
            delete reinterpret_cast<typename Transport::interface *>(iface);
        }
    }

    static ucs_status_t ep_create(const uct_ep_params_t *params,
                                  uct_ep_h *ep_p) noexcept
    {
        using endpoint = typename Transport::endpoint;
        static_assert(begins_as_in_ucx<endpoint>);
        *ep_p = nullptr;
        UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
        return guarded_entry([&] {
            auto made           = std::make_unique<endpoint>();
            ucs_status_t status = made->super.init(params->iface);
            if (status == UCS_OK) {
                status = made->open(*params);
            }
            if (status == UCS_OK) {
                *ep_p = made.release()->super.handle();
            }
            return status;
        });
    }

    static void ep_destroy(uct_ep_h ep) noexcept
    {
        if (!util::is_cut_off()) {
            delete reinterpret_cast<typename Transport::endpoint *>(ep);
        }
    }

    static ucs_status_t ep_flush(uct_ep_h ep, unsigned flags,
                                 uct_completion_t *comp) noexcept
    {
        const ucs_status_t status = Transport::ep_flush(ep, flags, comp);
        UCS_STATS_UPDATE_COUNTER(
            ucs_derived_of(ep, uct_base_ep_t)->stats,
            (status == UCS_OK) ? UCT_EP_STAT_FLUSH : UCT_EP_STAT_FLUSH_WAIT, 1);
        return status;
    }

    static ucs_status_t ep_fence(uct_ep_h ep, unsigned) noexcept
    {
        UCT_TL_EP_STAT_FENCE(ucs_derived_of(ep, uct_base_ep_t));
        interface_of(ep->iface).engine->fence();
        return UCS_OK;
    }

    static ucs_status_t ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                                       unsigned flags) noexcept
    {
        const ucs_status_t status = Transport::ep_pending_add(ep, req, flags);
        if (status == UCS_OK) {
            UCT_TL_EP_STAT_PEND(ucs_derived_of(ep, uct_base_ep_t));
        }
        return status;
    }

    /* The state is known here, so the completion, which callers may pass from
     * 1.22 on, is not used. */
    static ucs_status_t ep_check(uct_ep_h ep, unsigned flags,
                                 uct_completion_t *) noexcept
    {
        return (flags == 0) ? Transport::check_peer(ep) : UCS_ERR_INVALID_PARAM;
    }

    static constexpr uct_ep_check_func_t ep_check_slot()
    {
        if constexpr (requires(uct_ep_h ep) { Transport::check_peer(ep); }) {
            return checked<ep_check>::op;
        } else {
            return unsupported<uct_ep_check_func_t>::op;
        }
    }

    static ucs_status_t iface_flush(uct_iface_h iface, unsigned flags,
                                    uct_completion_t *comp) noexcept
    {
        const ucs_status_t status = Transport::iface_flush(iface, flags, comp);
        UCS_STATS_UPDATE_COUNTER(ucs_derived_of(iface, uct_base_iface_t)->stats,
                                 (status == UCS_OK) ? UCT_IFACE_STAT_FLUSH
                                                    : UCT_IFACE_STAT_FLUSH_WAIT,
                                 1);
        return status;
    }

    /* UCP fences interfaces only where it does not flush (1.13 always,
     * UCX_FENCE_MODE=weak from 1.16 on): nothing but the end of what was
     * started then keeps it before what other transports start. Requests that
     * wait come before the fence, too; a fence inside a callback leaves them.
     */
    static ucs_status_t iface_fence(uct_iface_h iface, unsigned) noexcept
    {
        constexpr double longest = 60; /* seconds without any progress */
        auto &self               = interface_of(iface);
        ucs_time_t last          = 0;
        UCT_TL_IFACE_STAT_FENCE(ucs_derived_of(iface, uct_base_iface_t));
        while (!self.pending.empty() && !self.super.is_in_progress()) {
            if ((iface_progress(iface) > 0) || (last == 0)) {
                last = ucs_get_time();
            } else if (ucs_time_to_sec(ucs_get_time() - last) > longest) {
                ucs_error("%s: a fence waits for requests that cannot start "
                          "(see that the peer makes progress)",
                          Transport::name);
                return UCS_ERR_TIMED_OUT;
            } else {
                sched_yield();
            }
        }
        return self.engine->drain_fence();
    }

    static unsigned iface_progress(uct_iface_h iface) noexcept
    {
        return ucs_likely(!util::is_cut_off())
                   ? interface_of(iface).super.progress(
                         [=] { return Transport::iface_progress(iface); })
                   : 0;
    }

    static ucs_status_t iface_query(uct_iface_h iface,
                                    uct_iface_attr_t *attr) noexcept
    {
        set_attributes(iface, Transport::properties(iface), *attr);
        return UCS_OK;
    }

    static ucs_status_t estimate_perf(uct_iface_h iface,
                                      uct_perf_attr_t *attr) noexcept
    {
        const transport_question question = question_of(*attr);
        if (question.is_host_to_host() && !Transport::moves_host(iface)) {
            return UCS_ERR_UNSUPPORTED;
        }
        set_estimate(Transport::estimate(iface, question), *attr);
        return UCS_OK;
    }

    static int iface_is_reachable(const uct_iface_h iface,
                                  const uct_device_addr_t *device_address,
                                  const uct_iface_addr_t *address) noexcept
    {
        return !util::is_cut_off() &&
               Transport::is_reachable(iface, device_address, address);
    }

    template <typename Attributes>
    static ucs_status_t iface_query_v2(uct_iface_h iface,
                                       Attributes *attr) noexcept
    {
        return uct_iface_base_query_v2(iface, attr);
    }

    /* Whatever the scope is: who is reachable is on the same device. */
    template <typename Parameters>
    static int iface_is_reachable_v2(const uct_iface_h iface,
                                     const Parameters *params) noexcept
    {
        const uint64_t fields = params->field_mask;
        const bool reachable  = iface_is_reachable(
             iface,
            (fields & ::UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR)
                 ? params->device_addr
                 : nullptr,
            (fields & ::UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR)
                 ? params->iface_addr
                 : nullptr);
        constexpr uint64_t text =
            ::UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING |
            ::UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH;
        if (((fields & text) == text) && (params->info_string_length > 0)) {
            ucs_snprintf_zero(params->info_string, params->info_string_length,
                              "%s", reachable ? "" : Transport::unreachable);
        }
        return reachable;
    }

    template <typename Parameters>
    static int ep_is_connected(const uct_ep_h ep,
                               const Parameters *params) noexcept
    {
        return (params->field_mask & ::UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR) &&
               Transport::is_connected(ep, params->iface_addr);
    }

    static void vfs_refresh(uct_iface_h iface) noexcept
    {
        (void)guarded([&] {
            interface_of(iface).engine->add_files();
            return UCS_OK;
        });
    }

    template <typename Operations>
    static consteval Operations make_internal_operations()
    {
        table_builder<Operations> table;
        Operations &own = table.own;
        table.set(own.iface_estimate_perf, checked<estimate_perf>::op);
        table.set(own.iface_vfs_refresh, vfs_refresh);
        table.decline(own.ep_query);
        table.decline(own.ep_invalidate);
        GAUDI_IF_THERE(own.iface_query_v2,
                       table.set(own.iface_query_v2, iface_query_v2))
        GAUDI_IF_THERE(
            own.iface_is_reachable_v2,
            table.set(own.iface_is_reachable_v2, iface_is_reachable_v2))
        GAUDI_IF_THERE(own.ep_is_connected,
                       table.set(own.ep_is_connected, ep_is_connected))
        GAUDI_IF_THERE(own.iface_mem_element_pack,
                       table.decline(own.iface_mem_element_pack))
        GAUDI_IF_THERE(own.ep_connect_to_ep_v2,
                       table.decline(own.ep_connect_to_ep_v2))
        GAUDI_IF_THERE(own.ep_get_device_ep,
                       table.decline(own.ep_get_device_ep))
        GAUDI_IF_THERE(own.ep_put_sgl_zcopy,
                       table.decline(own.ep_put_sgl_zcopy))
        GAUDI_IF_THERE(own.ep_get_sgl_zcopy,
                       table.decline(own.ep_get_sgl_zcopy))
        GAUDI_IF_THERE(own.ep_outstanding_purge,
                       table.decline(own.ep_outstanding_purge))
        return table.finish();
    }

    static constinit uct_iface_ops_t operations;
    static constinit inline uct_iface_internal_ops_t internal_operations =
        make_internal_operations<uct_iface_internal_ops_t>();

    template <size_t... I>
    static constexpr uct_tl_t make(std::index_sequence<I...>)
    {
        return {
            .name          = {Transport::name[I]...},
            .query_devices = query_devices,
            .iface_open    = iface_open,
            .config        = make_config_entry<Transport>(),
            .list          = {},
        };
    }
};

template <typename T>
constinit uct_iface_ops_t transport_functions<T>::operations = {
    .ep_put_short          = traced<UCT_EP_OP_PUT_SHORT, T::ep_put_short>::op,
    .ep_put_bcopy          = traced<UCT_EP_OP_PUT_BCOPY, T::ep_put_bcopy>::op,
    .ep_put_zcopy          = traced<UCT_EP_OP_PUT_ZCOPY, zcopy<T, true>>::op,
    .ep_get_short          = traced<UCT_EP_OP_GET_SHORT, T::ep_get_short>::op,
    .ep_get_bcopy          = traced<UCT_EP_OP_GET_BCOPY, T::ep_get_bcopy>::op,
    .ep_get_zcopy          = traced<UCT_EP_OP_GET_ZCOPY, zcopy<T, false>>::op,
    .ep_am_short           = T::ep_am_short,
    .ep_am_short_iov       = T::ep_am_short_iov,
    .ep_am_bcopy           = T::ep_am_bcopy,
    .ep_am_zcopy           = unsupported<uct_ep_am_zcopy_func_t>::op,
    .ep_atomic_cswap64     = unsupported<uct_ep_atomic_cswap64_func_t>::op,
    .ep_atomic_cswap32     = unsupported<uct_ep_atomic_cswap32_func_t>::op,
    .ep_atomic32_post      = unsupported<uct_ep_atomic32_post_func_t>::op,
    .ep_atomic64_post      = unsupported<uct_ep_atomic64_post_func_t>::op,
    .ep_atomic32_fetch     = unsupported<uct_ep_atomic32_fetch_func_t>::op,
    .ep_atomic64_fetch     = unsupported<uct_ep_atomic64_fetch_func_t>::op,
    .ep_tag_eager_short    = unsupported<uct_ep_tag_eager_short_func_t>::op,
    .ep_tag_eager_bcopy    = unsupported<uct_ep_tag_eager_bcopy_func_t>::op,
    .ep_tag_eager_zcopy    = unsupported<uct_ep_tag_eager_zcopy_func_t>::op,
    .ep_tag_rndv_zcopy     = unsupported<uct_ep_tag_rndv_zcopy_func_t>::op,
    .ep_tag_rndv_cancel    = unsupported<uct_ep_tag_rndv_cancel_func_t>::op,
    .ep_tag_rndv_request   = unsupported<uct_ep_tag_rndv_request_func_t>::op,
    .iface_tag_recv_zcopy  = unsupported<uct_iface_tag_recv_zcopy_func_t>::op,
    .iface_tag_recv_cancel = unsupported<uct_iface_tag_recv_cancel_func_t>::op,
    .ep_pending_add    = checked<transport_functions<T>::ep_pending_add>::op,
    .ep_pending_purge  = T::ep_pending_purge,
    .ep_flush          = checked<transport_functions<T>::ep_flush>::op,
    .ep_fence          = checked<transport_functions<T>::ep_fence>::op,
    .ep_check          = transport_functions<T>::ep_check_slot(),
    .ep_create         = transport_functions<T>::ep_create,
    .ep_connect        = unsupported<uct_ep_connect_func_t>::op,
    .ep_disconnect     = unsupported<uct_ep_disconnect_func_t>::op,
    .cm_ep_conn_notify = unsupported<uct_cm_ep_conn_notify_func_t>::op,
    .ep_destroy        = transport_functions<T>::ep_destroy,
    .ep_get_address    = unsupported<uct_ep_get_address_func_t>::op,
    .ep_connect_to_ep  = unsupported<uct_ep_connect_to_ep_func_t>::op,
    .iface_accept      = unsupported<uct_iface_accept_func_t>::op,
    .iface_reject      = unsupported<uct_iface_reject_func_t>::op,
    .iface_flush       = checked<transport_functions<T>::iface_flush>::op,
    .iface_fence       = checked<transport_functions<T>::iface_fence>::op,
    .iface_progress_enable    = uct_base_iface_progress_enable,
    .iface_progress_disable   = uct_base_iface_progress_disable,
    .iface_progress           = transport_functions<T>::iface_progress,
    .iface_event_fd_get       = checked<T::iface_event_fd_get>::op,
    .iface_event_arm          = checked<T::iface_event_arm>::op,
    .iface_close              = transport_functions<T>::iface_close,
    .iface_query              = checked<iface_query>::op,
    .iface_get_device_address = T::iface_get_device_address,
    .iface_get_address        = T::iface_get_address,
    .iface_is_reachable       = iface_is_reachable,
};

static_assert(sizeof(uct_iface_ops_t) == 50 * sizeof(void *),
              "UCX has a slot that is not known here");

/** UCX's table of a transport. */
template <typename Transport>
constinit uct_tl_t transport = transport_functions<Transport>::make(
    std::make_index_sequence<sizeof(Transport::name)>());

/** Tell UCX of a component with its transport. Called once, at load. */
template <typename Domain, typename Transport>
void register_component()
{
    uct_component_t &own = component<Domain>;
    uct_component_register(&own);
    if constexpr (Domain::comes_first && ucx_has_own_module) {
        ucs_list_del(&own.list);
        ucs_list_add_head(&uct_components_list, &own.list);
    }
    uct_tl_register(&own, &transport<Transport>);
}

} // namespace gaudi::base
