/**
 * A range of device addresses that the driver mapped in one piece: what a
 * dma-buf can be made of, and what other cards of the process can reach.
 */
#pragma once

#include "uct/gaudi/base/card.h"

#include <cstdint>

namespace gaudi::base {

struct device_backing {
    device_backing(card &card_of, uint64_t mapped_va, uint64_t mapped_size)
        : owner(card_of), va(mapped_va), size(mapped_size)
    {}

    card &owner;
    const uint64_t va;   /**< as the driver gave it */
    const uint64_t size; /**< bytes, whole DRAM pages */
};

} // namespace gaudi::base
