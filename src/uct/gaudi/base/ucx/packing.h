/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calling a pack callback, and whether all it packed could be fetched.
 *
 * UCP packs device memory by get_short, and UCP 1.13 ignores its status. So a
 * get_short that fails sets a flag of its thread, at which the bcopy that
 * called back looks before it sends.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** UCS_OK, or how a get_short of this thread has failed. */
inline constinit thread_local ucs_status_t fetch_failure = UCS_OK;

/** Call a pack callback.
 *  @return Bytes, or how fetching them failed: they must not be sent. */
inline ssize_t call_pack(uct_pack_callback_t pack, void *to, void *arg)
{
    fetch_failure      = UCS_OK;
    const size_t bytes = pack(to, arg);
    return ucs_likely(fetch_failure == UCS_OK)
               ? static_cast<ssize_t>(bytes)
               : static_cast<ssize_t>(fetch_failure);
}

} // namespace gaudi::base
