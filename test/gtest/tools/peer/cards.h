/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cards that the program uses by libhl-thunk.so itself, without UCX: one that
 * it opens, and what the engines of software cards did. Belongs to the process;
 * threads: any.
 */
#pragma once

#include <cstddef>
#include <cstdint>

namespace peer {

/** Open a card. From then on gaudi memory of the programs is of that card. */
void open_own_card();

/** Whether that was done. */
bool has_own_card();

struct own_memory {
    uint64_t handle  = 0;
    uint64_t address = 0;
};

own_memory allocate_on_own_card(size_t size);
void free_on_own_card(const own_memory &memory);

/** What the engines of the cards which this process has open moved: bytes, and
 *  in how many jobs. */
struct dma_count {
    uint64_t host_to_device   = 0;
    uint64_t device_to_host   = 0;
    uint64_t device_to_device = 0;
    uint64_t host_to_host     = 0;
    uint64_t jobs             = 0;
};

dma_count count_dma();

dma_count operator-(const dma_count &after, const dma_count &before);

} // namespace peer
