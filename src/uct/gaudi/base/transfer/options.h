/**
 * Sizes of a transfer engine.
 */
#pragma once

#include <cstddef>

namespace gaudi::base {

struct transfer_options {
    size_t chunk_bytes = 65536;   /**< of staging memory, and longest bcopy */
    unsigned chunks    = 16;      /**< per card */
    unsigned max_ops   = 65536;   /**< operations outstanding */
    size_t piece_bytes = 1 << 20; /**< longest DMA job, and longest copy of the
                                       kernel in one progress() */
    unsigned pieces    = 4; /**< long ones in flight per card and direction */
    size_t short_bytes = 65536; /**< longest copy that never waits for pieces
                                     of others, if the card can do that */
    bool remember_host = false; /**< put host memory that nobody registered into
                                     the registration cache, if there is one,
                                     when device memory of another process is
                                     copied to or from it */
};

} // namespace gaudi::base
