/**
 * What software cards of this process do: for programs that are linked with the
 * emulator. Threads: any.
 */
#pragma once

#include <cstdint>

namespace peer {

/** Bytes that the engines of the cards which this process has open moved. */
struct dma_bytes {
    uint64_t host_to_device   = 0;
    uint64_t device_to_host   = 0;
    uint64_t device_to_device = 0; /**< an imported dma-buf counts as device */
    uint64_t host_to_host     = 0;
};

dma_bytes count_dma();

dma_bytes operator-(const dma_bytes &after, const dma_bytes &before);

/** Close every dma-buf that this process has. @return how many there were. */
unsigned close_dmabufs();

} // namespace peer
