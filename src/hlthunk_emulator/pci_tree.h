/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The PCI functions between the host and the cards, as Linux numbers and
 * describes them: HLTHUNK_EMU_PCI says how they are arranged.
 *
 * The cards of a group of HLTHUNK_EMU_P2P, all without groups, are below a
 * switch: a root port, the switch's upstream port, and a downstream port for
 * each card. A PCI domain has eight cards and switches of its own.
 */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gaudi::emu {

/** Device/Port Type of the PCI Express Capabilities Register. */
enum class pci_type : uint8_t {
    endpoint   = 0,
    root_port  = 4,
    upstream   = 5,
    downstream = 6
};

struct pci_function {
    std::string address; /**< "dddd:bb:dd.f" */
    std::string folder;  /**< its own, below devices/ of sysfs */
    std::string group;   /**< address of the first one in its IOMMU group */
    pci_type type;
    uint16_t vendor;
    uint16_t device;
    uint32_t class_code;     /**< 24 bits: base class, subclass, interface */
    uint8_t bus;             /**< its own */
    uint8_t secondary   = 0; /**< of a bridge: the bus below, */
    uint8_t subordinate = 0; /**< and the last one */
};

/** The functions from the root port to a card, which is the last. */
std::vector<pci_function> pci_path(unsigned card);

/** What is in its configuration space; only what an ordinary user may read
 *  where HLTHUNK_EMU_PCI says so. */
std::string pci_config(const pci_function &function);

/** Whether what goes from card to card passes the root, not only a switch. */
bool goes_through_root(unsigned card, unsigned other);

} // namespace gaudi::emu
