/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How UCX's tables get the operations of a transport: refused in a process that
 * is cut off, with UCX's log at level `data` and its statistics. Nothing is
 * left of either where UCX is configured without.
 */
#pragma once

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** How long a put or get is, by its arguments; those that pack say it by their
 *  result. */
inline size_t length_of(const void *, unsigned length, uint64_t, uct_rkey_t)
{
    return length;
}

inline size_t length_of(uct_pack_callback_t, void *, uint64_t, uct_rkey_t)
{
    return 0;
}

inline size_t length_of(uct_unpack_callback_t, void *, size_t length, uint64_t,
                        uct_rkey_t, uct_completion_t *)
{
    return length;
}

inline size_t length_of(const uct_iov_t *iov, size_t count, uint64_t,
                        uct_rkey_t, uct_completion_t *)
{
    return uct_iov_total_length(iov, count);
}

/** Have UCX's log and statistics show what a put or get has begun. */
template <uct_ep_operation_t which, typename Result, typename... Arguments>
inline Result trace(uct_ep_h ep, Result result, Arguments... arguments)
{
    if (result >= 0) { /* UCS_INPROGRESS is, too */
        [[maybe_unused]] constexpr bool is_put =
            (which == UCT_EP_OP_PUT_SHORT) || (which == UCT_EP_OP_PUT_BCOPY) ||
            (which == UCT_EP_OP_PUT_ZCOPY);
        [[maybe_unused]] constexpr bool is_short =
            (which == UCT_EP_OP_PUT_SHORT) || (which == UCT_EP_OP_GET_SHORT);
        [[maybe_unused]] constexpr bool is_bcopy =
            (which == UCT_EP_OP_PUT_BCOPY) || (which == UCT_EP_OP_GET_BCOPY);
        [[maybe_unused]] const size_t length =
            length_of(arguments...) +
            ((sizeof(Result) == sizeof(ssize_t)) ? result : 0);
        ucs_trace_data("ep %p: %s of %zu bytes", ep,
                       uct_ep_operation_names[which], length);
        UCS_STATS_UPDATE_COUNTER(ucs_derived_of(ep, uct_base_ep_t)->stats,
                                 is_put ? UCT_EP_STAT_PUT : UCT_EP_STAT_GET, 1);
        UCS_STATS_UPDATE_COUNTER(ucs_derived_of(ep, uct_base_ep_t)->stats,
                                 is_short   ? UCT_EP_STAT_BYTES_SHORT
                                 : is_bcopy ? UCT_EP_STAT_BYTES_BCOPY
                                            : UCT_EP_STAT_BYTES_ZCOPY,
                                 length);
    }
    return result;
}

template <uct_ep_operation_t which, auto operation>
struct traced;

/** A put or get that shows itself. */
template <uct_ep_operation_t which, typename Result, typename... Arguments,
          Result (*operation)(uct_ep_h, Arguments...) noexcept>
struct traced<which, operation> {
    [[gnu::flatten]] static Result op(uct_ep_h ep,
                                      Arguments... arguments) noexcept
    {
        return trace<which>(ep, operation(ep, arguments...), arguments...);
    }
};

template <auto operation>
struct checked;

/** An operation that a process which is cut off refuses. */
template <typename... Arguments,
          ucs_status_t (*operation)(Arguments...) noexcept>
struct checked<operation> {
    static ucs_status_t op(Arguments... arguments) noexcept
    {
        const ucs_status_t status = check_process();
        return ucs_likely(status == UCS_OK) ? operation(arguments...) : status;
    }
};

} // namespace gaudi::base
