/**
 * Which box of cards this process is in.
 */
#pragma once

#include <cstdint>

namespace gaudi::base {

/**
 * Names the box: the same number in all processes of one running system whose
 * cards are in one box, so that their cards may reach each other. Any thread;
 * the first call loads the driver library.
 */
uint64_t box_identity();

} // namespace gaudi::base
