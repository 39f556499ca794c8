/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The one place where the emulator moves bytes.
 */
#pragma once

#include <cstddef>

namespace gaudi::emu {

/** Copy memory for a LIN_DMA packet; the ranges may overlap. */
void copy_bytes(char *dst, const char *src, size_t size);

} // namespace gaudi::emu
