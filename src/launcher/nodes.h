/**
 * The device nodes of Gaudi cards, before any driver library is asked.
 */
#pragma once

#include "launcher/machine.h"
#include "launcher/problem.h"

namespace launcher {

/** Nodes that are there and that this user may not open. */
problems find_closed_nodes(const machine &where);

/** Gaudi cards on the PCI bus, with or without a node. */
unsigned count_pci_cards(const machine &where);

} // namespace launcher
