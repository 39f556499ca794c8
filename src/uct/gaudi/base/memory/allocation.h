/**
 * Device memory that we give out.
 *
 * Any thread; see device_pool.h and memory_map.h for the locks. It is given
 * back by memory_map::free.
 */
#pragma once

#include "uct/gaudi/base/memory/memory.h"

namespace gaudi::base {

/**
 * The card on which to allocate. Cards are open.
 *
 * @param hint  An address in or near memory of the wished card; NULL, and an
 *              address that is no card's, leave it to us, who take the first
 *              card.
 */
[[nodiscard]] card &card_for_hint(const void *hint);

/**
 * Allocate device memory and announce it.
 *
 * The card gets it back when it has been freed and its last registration has
 * ended, and the last dma-buf of it is closed.
 *
 * @param length    bytes.
 * @param quiet     Log a failure as a diagnostic, not as an error.
 * @param memory_p  Filled on success.
 * @return UCS_ERR_NO_MEMORY when the card has not that much left.
 */
[[nodiscard]] ucs_status_t allocate(card &owner, size_t length, bool quiet,
                                    device_memory *&memory_p);

} // namespace gaudi::base
