/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cards that run command buffers in the user's own memory (Gaudi2), by command
 * submission through libhl-thunk.
 *
 * Counts what is in flight: hl-thunk's call would spin inside while the driver
 * has no room. Sequence numbers are the tickets.
 */
#pragma once

#include "hlthunk_shim/card.h"

#include <memory>
#include <string>

namespace gaudi::shim {

/** As driver::open, with a usable library, which must outlive the card. Forked
 *  children close it. */
[[nodiscard]] int open_card(const library &lib, const std::string &bus_id,
                            std::unique_ptr<card> &card_p);

/** As driver::adopt. */
[[nodiscard]] int adopt_card(const library &lib, int fd,
                             std::unique_ptr<card> &card_p);

} // namespace gaudi::shim
