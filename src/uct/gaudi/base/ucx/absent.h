/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What is not there: names that some releases of UCX do not have, with what
 * their absence means, and typed answers for operations that a transport does
 * not have.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstdint>
#include <type_traits>

/* With :: before it a name is UCX's own where there is one, else that of here.
 */
namespace gaudi_absent {

/* Fields that nobody asks for. */
inline constexpr uint64_t UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR            = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR         = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_FD                 = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET             = 0;
inline constexpr uint64_t UCT_MD_MEM_REG_FIELD_FLAGS                      = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_FLAGS                       = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH              = 0;

/* Wishes that nobody has to say. But UCX 1.20.1 looks at this one, whose module
 * may have been built with the headers of 1.20.0, and so does 1.21.0, of which
 * there are commits without it; those before do not look at the bit, and always
 * lock. The caches of the two are alike but for `lru`, which is UCX's alone. */
inline constexpr int UCS_RCACHE_FLAG_NEED_LRU_LOCK =
    (UCT_API >= UCT_VERSION(1, 20)) ? 1 << 3 : 0;

/* Abilities that nobody asks about. */
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_AMO = 0;
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_RMA = 0;
inline constexpr uint64_t UCT_MD_FLAG_MEMTYPE_COPY   = 0;

} // namespace gaudi_absent

/* At the place where :: looks second. */
using namespace gaudi_absent; /* NOLINT(google-build-using-namespace,
                                 google-global-names-in-headers) */

namespace gaudi::base {

template <typename Operation>
struct unsupported;

/** `unsupported<uct_ep_am_short_func_t>::op` says UCS_ERR_UNSUPPORTED in the
 *  result type of that operation. */
template <typename Result, typename... Arguments>
struct unsupported<Result (*)(Arguments...)> {
    static Result op(Arguments...) noexcept
    {
        if constexpr (std::is_pointer_v<Result>) {
            return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
        } else {
            return static_cast<Result>(UCS_ERR_UNSUPPORTED);
        }
    }
};

/** Let a table's slot say UCS_ERR_UNSUPPORTED. */
template <typename Operation>
constexpr void decline(Operation &slot)
{
    slot = unsupported<Operation>::op;
}

/** For operations that ask something. */
template <typename... Arguments>
int answer_no(Arguments...) noexcept
{
    return 0;
}

/** For operations that undo what was never done. */
template <typename... Arguments>
void answer_nothing(Arguments...) noexcept
{}

/** The type of the function that UCX calls for an operation: for declarations.
 */
template <typename Operation>
using callback = decltype(unsupported<Operation>::op);

} // namespace gaudi::base
