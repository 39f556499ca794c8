/**
 * The types of operations, and typed answers for those that a transport does
 * not have.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <type_traits>

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
