/**
 * What software cards of this process do: for programs that are linked with the
 * emulator. Threads: any.
 */
#pragma once

#include <cstdint>

namespace peer {

/** What the engines of the cards which this process has open moved: bytes, and
 *  in how many jobs. */
struct dma_count {
    uint64_t host_to_device   = 0;
    uint64_t device_to_host   = 0;
    uint64_t device_to_device = 0; /**< an imported dma-buf counts as device */
    uint64_t host_to_host     = 0;
    uint64_t jobs             = 0;
};

dma_count count_dma();

dma_count operator-(const dma_count &after, const dma_count &before);

/** Close every dma-buf that this process has. @return how many there were. */
unsigned close_dmabufs();

} // namespace peer
