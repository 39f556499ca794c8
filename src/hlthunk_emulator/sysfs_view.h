/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The sysfs of the emulated machine: what the kernel would show of its cards,
 * as files in a folder that HLTHUNK_EMU_SYSFS names.
 *
 * Processes of a box fill the folder together, each with the same content, and
 * leave it there. Thread-safe.
 */
#pragma once

#include "hlthunk_emulator/ports/wiring.h"

#include <optional>

namespace gaudi::emu {

/** NUMA node of a card, as HLTHUNK_EMU_NUMA says, else one of this machine's,
 *  over which cards are spread; none: unknown. */
std::optional<unsigned> numa_node_of(unsigned index);

/**
 * Fill the folder, at the first call.
 *
 * @return Its path; nullptr when no folder is set, or it cannot be filled,
 *         which was said on stderr.
 */
const char *sysfs_root();

/** Show whether the wire of a port carries anything. */
void show_link(port_end port, bool is_up);

} // namespace gaudi::emu
