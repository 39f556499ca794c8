/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What an errno says of another try.
 */
#pragma once

#include <cerrno>

namespace gaudi::util {

/** Whether a failure may pass, and so tells nothing of what was asked for:
 *  there was no room, for descriptors or memory, or somebody was at it.
 *  @param error  An errno, positive. */
[[nodiscard]] constexpr bool may_pass(int error)
{
    return (error == EMFILE) || (error == ENFILE) || (error == ENOMEM) ||
           (error == EBUSY) || (error == EAGAIN);
}

} // namespace gaudi::util
