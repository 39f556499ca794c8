/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which NUMA node memory and threads that serve a card belong on.
 *
 * Does something only on machines with more than one node. Placing is a wish:
 * where the kernel does not grant it, everything works as without. Any thread.
 * Knows no driver library: the emulator uses it, too.
 */
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <sched.h>

namespace gaudi::util {

/** NUMA nodes from which this process may have memory, ascending; as they were
 *  at the first call. One node, or none, where the kernel knows of no NUMA. */
const std::vector<unsigned> &memory_nodes();

/**
 * Decide where what serves a card belongs.
 *
 * @param card   Node of the card, if known.
 * @param nodes  As @ref memory_nodes.
 * @return The node of the card, if there is a choice and the node is one.
 */
std::optional<unsigned> choose_node(std::optional<unsigned> card,
                                    std::span<const unsigned> nodes);

/**
 * Decide on which CPUs a thread that serves a card runs.
 *
 * @param allowed  CPUs that the thread had so far.
 * @param local    CPUs of the card's node.
 * @return Those that are both; all that it had when there are none.
 */
cpu_set_t choose_cpus(const cpu_set_t &allowed, const cpu_set_t &local);

/** Let pages of a mapping that are not there yet come from a card's node. */
void place_memory(void *data, size_t size, std::optional<unsigned> card);

/** Let the calling thread run on the node of a card; of an unknown one,
 *  wherever it could run before. */
void place_thread(std::optional<unsigned> card);

} // namespace gaudi::util
