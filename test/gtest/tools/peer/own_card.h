/**
 * A card and device memory that the program gets from libhl-thunk.so itself,
 * without UCX. Belongs to the process; threads: any.
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

} // namespace peer
