/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * UCX's zero copies, by those of a transport: of one piece, and of lists, which
 * UCX has from 1.22 (put) and 1.23 (get) on.
 */
#pragma once

#include "uct/gaudi/base/ucx/absent.h"
#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** UCX's two zcopy operations of a transport, by its one. */
template <typename Transport, bool is_put>
struct zcopy {
    static ucs_status_t op(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                           uint64_t remote_addr, uct_rkey_t rkey,
                           uct_completion_t *comp) noexcept
    {
        UCT_CHECK_IOV_SIZE(iovcnt, 1ul, Transport::name);
        const bool empty = (iovcnt == 0);
        return Transport::zcopy(ep, is_put, empty ? nullptr : iov->buffer,
                                empty ? 0 : uct_iov_get_length(iov),
                                remote_addr, rkey, comp);
    }
};

/** UCX's operations on lists, from 1.22 and 1.23 on. Elements that repeat,
 * which UCP has none of, are refused as by cuda_ipc. */
template <typename Transport, bool is_put>
struct zcopy_list {
    static ucs_status_t op(uct_ep_h ep, void *const *buffers,
                           const size_t *lengths, const uct_mem_h *,
                           const uint64_t *remote_addrs,
                           const uct_rkey_t *rkeys, const size_t *counts,
                           const size_t *strides, size_t count,
                           uct_completion_t *comp) noexcept
    {
        if ((counts != nullptr) || (strides != nullptr)) {
            ucs_debug("%s: a list with elements that repeat", Transport::name);
            return UCS_ERR_UNSUPPORTED;
        }
        return Transport::zcopy_list(ep, is_put, buffers, lengths, remote_addrs,
                                     rkeys, count, comp);
    }
};

/* Operations on lists that an interface has. */
inline constexpr uint64_t list_flags =
#ifdef UCT_IFACE_FLAG_V2_GET_SGL_ZCOPY
    UCT_IFACE_FLAG_V2_GET_SGL_ZCOPY |
#endif
#ifdef UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY
    UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY;
#else
    0;
#endif

/** @param longest  Elements.
 *  @param attr     uct_iface_attr_v2_t, which some releases do not have. */
template <typename Attributes>
void set_list_attributes([[maybe_unused]] size_t longest,
                         [[maybe_unused]] Attributes &attr)
{
    if constexpr (requires { attr.cap.flags; }) {
        if ((attr.field_mask & ::UCT_IFACE_ATTR_FIELD_CAP_FLAGS) != 0) {
            attr.cap.flags |= list_flags;
        }
    }
    if constexpr (requires { attr.max_put_sgl_zcopy_count; }) {
        if ((attr.field_mask &
             ::UCT_IFACE_ATTR_FIELD_MAX_PUT_SGL_ZCOPY_COUNT) != 0) {
            attr.max_put_sgl_zcopy_count = longest;
        }
    }
    if constexpr (requires { attr.max_get_sgl_zcopy_count; }) {
        if ((attr.field_mask &
             ::UCT_IFACE_ATTR_FIELD_MAX_GET_SGL_ZCOPY_COUNT) != 0) {
            attr.max_get_sgl_zcopy_count = longest;
        }
    }
}

} // namespace gaudi::base
