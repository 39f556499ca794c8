/**
 * What the kernel driver shows of the cards, before any driver library is
 * asked. Reads sysfs and the names of device files.
 */
#pragma once

#include "launcher/machine.h"

namespace launcher {

/** The habanalabs driver. What differs between releases shows in where their
 *  attributes are (sysfs.c of each). */
struct kernel_driver {
    bool is_loaded = false; /**< it shows a card */
    /** It has the system calls of Linux 6.7 and later: its attributes are those
     *  of the PCI function, and no longer of the class device. */
    bool has_drm_calls = false;
    /** It is the vendor's own, which alone imports dma-bufs, and alone has the
     *  attribute driver_ver. */
    bool can_import = false;
};

kernel_driver find_kernel_driver(const machine &where);

/** Whether there is a device file of a card. */
bool has_nodes(const machine &where);

/** Device files that are there and that this user may not open. */
problems find_closed_nodes(const machine &where);

/** Gaudi cards on the PCI bus, with or without a device file. */
unsigned count_pci_cards(const machine &where);

} // namespace launcher
