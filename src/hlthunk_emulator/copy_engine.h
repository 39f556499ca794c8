/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The one place where the emulator moves bytes.
 */
#pragma once

#include <cstddef>

namespace gaudi::emu {

/**
 * Copy memory for a LIN_DMA packet.
 *
 * @param large  This is part of a copy of more than the caches of a core hold.
 *               Ranges that overlap are copied right only where it is not.
 */
void copy_bytes(char *dst, const char *src, size_t size, bool large);

} // namespace gaudi::emu
