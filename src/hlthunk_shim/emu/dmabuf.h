/**
 * dma-bufs of the emulator.
 *
 * A dma-buf is one end of a socket pair whose queue holds a message: what is
 * exported, and the memory's memfd as an attached descriptor. Importers peek at
 * the message, which gives them a descriptor and leaves it in place; the CPU
 * cannot map a socket; and our end of the pair hangs up when the last copy of
 * the exported one is closed, in whatever process.
 */
#pragma once

#include "hlthunk_shim/emu/hbm.h"

#include <cstdint>
#include <vector>

namespace gaudi::emu {

/**
 * Create a dma-buf.
 *
 * @param memory_fd  The memfd.
 * @param holder_fd  Holds the card: it stays taken while the dma-buf lives.
 * @param runs       The exported pieces of it, in order.
 * @param keeper_p   Our end; filled on success only, owned by the caller.
 * @return The dma-buf's file descriptor, owned by the caller, or -errno.
 */
int create_dmabuf(int memory_fd, int holder_fd,
                  const std::vector<hbm_run> &runs, int &keeper_p);

/** Whether any process still holds the dma-buf behind our end. */
bool dmabuf_is_alive(int keeper);

} // namespace gaudi::emu
