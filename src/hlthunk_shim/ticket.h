/**
 * Names work that a card was given.
 */
#pragma once

#include <cstdint>

namespace gaudi::shim {

/**
 * Given out by a queue or a card, and understood by that card alone: see
 * card::query. A number or an address of whoever runs the work.
 */
enum class ticket : uint64_t { none = 0 };

} // namespace gaudi::shim
