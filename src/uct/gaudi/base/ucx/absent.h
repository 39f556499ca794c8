/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What some releases of UCX do not have: names with what their absence means,
 * and tables whose slots come and go.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstdint>
#include <type_traits>

/* With :: before it a name is UCX's own where there is one, else that of here.
 */
namespace gaudi_absent {

/* Fields and flags that nobody sets. */
inline constexpr uint64_t UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR            = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR         = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH = 0;
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_AMO                      = 0;
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_RMA                      = 0;
inline constexpr uint64_t UCT_MD_FLAG_MEMTYPE_COPY                        = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_FD                 = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET             = 0;
inline constexpr uint64_t UCT_MD_MEM_REG_FIELD_FLAGS                      = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_FLAGS                       = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH              = 0;

/* UCX 1.20.1 and some commits of 1.21.0 look at this flag, whose module may
 * have been built with headers without it; those before do not look at the bit,
 * and always lock. */
inline constexpr int UCS_RCACHE_FLAG_NEED_LRU_LOCK =
    (UCT_API >= UCT_VERSION(1, 20)) ? 1 << 3 : 0;

} // namespace gaudi_absent

/* At the place where :: looks second. */
using namespace gaudi_absent; /* NOLINT(google-build-using-namespace,
                                 google-global-names-in-headers) */

namespace gaudi::base {

template <typename Operation>
struct unsupported;

/** `unsupported<uct_ep_am_short_func_t>::op` returns UCS_ERR_UNSUPPORTED in the
 *  result type of that operation. */
template <typename Result, typename... Arguments>
struct unsupported<Result (*)(Arguments...)> {
    static Result op(Arguments...) noexcept
    {
        if constexpr (std::is_pointer_v<Result>) {
            return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
        } else if constexpr (!std::is_void_v<Result>) {
            return static_cast<Result>(UCS_ERR_UNSUPPORTED);
        }
    }
};

/** For operations that undo what was never done. */
template <typename... Arguments>
void answer_nothing(Arguments...) noexcept
{}

/** The type of the function that UCX calls for an operation: for declarations.
 */
template <typename Operation>
using callback = decltype(unsupported<Operation>::op);

/** Fills a table that has nothing but functions, at compile time. UCX calls
 * each slot, so a table with one that nobody knows does not compile. */
template <typename Table>
struct table_builder {
    template <typename Slot>
    constexpr void set(Slot &slot, std::type_identity_t<Slot> function)
    {
        slot = function;
        ++known;
    }

    template <typename Slot>
    constexpr void decline(Slot &slot)
    {
        set(slot, unsupported<Slot>::op);
    }

    [[nodiscard]] constexpr Table finish() const
    {
        if (known * sizeof(void *) != sizeof(Table)) {
            throw "UCX has a slot that is not known here";
        }
        return own;
    }

    Table own{};
    size_t known = 0;
};

/** Do something with a slot, or a field, that not all releases have. */
#define GAUDI_IF_THERE(_slot, ...)                                             \
    if constexpr (requires { _slot; }) {                                       \
        __VA_ARGS__;                                                           \
    }

} // namespace gaudi::base
