/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCX's log tells of puts and gets at its level `data`, and its statistics
 * count, as of those of its own transports. Nothing is left of either where UCX
 * is configured without.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <numeric>

namespace gaudi::base {

/** How long an operation is, by its arguments; those that pack say it by their
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

inline size_t length_of(void *const *, const size_t *lengths, const uct_mem_h *,
                        const uint64_t *, const uct_rkey_t *, const size_t *,
                        const size_t *, size_t count, uct_completion_t *)
{
    return std::accumulate(lengths, lengths + count, size_t{0});
}

/** Where UCX's statistics of an endpoint count an operation. */
struct operation_counters {
    unsigned operations;
    unsigned bytes;
};

constexpr operation_counters counters_of(uct_ep_operation_t which)
{
    switch (which) {
    case UCT_EP_OP_PUT_SHORT:
        return {UCT_EP_STAT_PUT, UCT_EP_STAT_BYTES_SHORT};
    case UCT_EP_OP_GET_SHORT:
        return {UCT_EP_STAT_GET, UCT_EP_STAT_BYTES_SHORT};
    case UCT_EP_OP_PUT_BCOPY:
        return {UCT_EP_STAT_PUT, UCT_EP_STAT_BYTES_BCOPY};
    case UCT_EP_OP_GET_BCOPY:
        return {UCT_EP_STAT_GET, UCT_EP_STAT_BYTES_BCOPY};
    case UCT_EP_OP_PUT_ZCOPY:
        return {UCT_EP_STAT_PUT, UCT_EP_STAT_BYTES_ZCOPY};
    default:
        return {UCT_EP_STAT_GET, UCT_EP_STAT_BYTES_ZCOPY};
    }
}

template <uct_ep_operation_t which, typename Result, typename... Arguments>
inline Result trace(uct_ep_h ep, Result result, Arguments... arguments)
{
    if (result >= 0) { /* UCS_INPROGRESS is, too */
        [[maybe_unused]] const size_t length =
            length_of(arguments...) +
            ((sizeof(Result) == sizeof(ssize_t)) ? result : 0);
        ucs_trace_data("ep %p: %s of %zu bytes", ep,
                       uct_ep_operation_names[which], length);
        UCS_STATS_UPDATE_COUNTER(ucs_derived_of(ep, uct_base_ep_t)->stats,
                                 counters_of(which).operations, 1);
        UCS_STATS_UPDATE_COUNTER(ucs_derived_of(ep, uct_base_ep_t)->stats,
                                 counters_of(which).bytes, length);
    }
    return result;
}

/** An operation that tells of what it has begun. */
template <uct_ep_operation_t which, auto operation>
struct traced;

template <uct_ep_operation_t which, typename Result, typename... Arguments,
          Result (*operation)(uct_ep_h, Arguments...) noexcept>
struct traced<which, operation> {
    [[gnu::flatten]] static Result op(uct_ep_h ep,
                                      Arguments... arguments) noexcept
    {
        return trace<which>(ep, operation(ep, arguments...), arguments...);
    }
};

} // namespace gaudi::base
