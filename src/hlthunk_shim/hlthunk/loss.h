/**
 * What the answers of the driver tell of the card as a whole. Any thread.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/library.h"

namespace gaudi::shim {

/**
 * Look at what a driver call on an open card said. If that means that the card
 * was reset or removed, or that the descriptor is not the card's any more, the
 * card is lost, and a warning says what to do; not about the descriptor, which
 * the application has closed.
 *
 * @param result  0 or -errno.
 * @return The same; -ENODEV for what says no more than that the card is lost.
 */
[[nodiscard]] int judge_failure(const card &asked, const library &lib,
                                int result);
[[nodiscard]] inline int judge(const card &asked, const library &lib,
                               int result)
{
    return (result >= 0) ? result : judge_failure(asked, lib, result);
}

/** A card is lost in a way that nobody here has had a part in: say so, once,
 * and what to do.
 *  @param how  As in "reset". */
void tell_loss(const card &lost, const char *how);

} // namespace gaudi::shim
