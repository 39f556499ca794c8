/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCP calls for, where its calls do not say: who called tells.
 *
 * Any thread. They take locks of the loader: for what has failed.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

/** Whether UCP goes on with the message when a copy has failed that packs
 *  device memory into it or unpacks it (ucp_mem_type_pack). Later releases end
 *  the process. */
inline constexpr bool ignores_failed_packing = UCT_API < UCT_VERSION(1, 14);

/** Whether a short put or get was such a copy.
 *  @param return_address  Of the call, in the caller's code. */
[[nodiscard]] bool is_packing(const void *return_address);

/** Whether a completion is of a fragment that UCP copies to or from device
 *  memory on the way of a message: it ignores its status. */
[[nodiscard]] bool is_fragment(const uct_completion_t &completion);

enum class key_user {
    program, /**< by ucp_ep_rkey_unpack, for put and get */
    message, /**< UCP, which has been sent the key with one */
    unknown,
};

/** For whom the calling thread is unpacking a remote key. */
[[nodiscard]] key_user find_key_user();

} // namespace gaudi::base
