/**
 * What this process has.
 */
#pragma once

#include <cstddef>

namespace peer {

struct counts {
    ptrdiff_t files;
    ptrdiff_t mappings;
    size_t resident_kib; /**< without shared memory, which a card's is */
};

counts count();

} // namespace peer
