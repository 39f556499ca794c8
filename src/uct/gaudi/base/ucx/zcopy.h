/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * UCX's zero copies, of one piece, by those of a transport.
 */
#pragma once

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

} // namespace gaudi::base
