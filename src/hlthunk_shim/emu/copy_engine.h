/**
 * The one place where the emulator moves bytes.
 */
#pragma once

#include <cstddef>

namespace gaudi::emu {

/**
 * Copy memory for a LIN_DMA packet.
 *
 * @param large  The packet moves more than caches hold; this is a part of it.
 */
void copy_bytes(char *dst, const char *src, size_t size, bool large);

} // namespace gaudi::emu
