/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/pci_tree.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cstdio>

namespace gaudi::emu {

namespace {

constexpr unsigned cards_per_domain = 8;

constexpr uint32_t bridge_class = 0x060400;
/* A root port of a Xeon of the third generation, a switch of Broadcom's. */
constexpr uint16_t root_port_id[] = {0x8086, 0x347a};
constexpr uint16_t switch_id[]    = {0x1000, 0xc010};

unsigned bus_of(unsigned card)
{
    return static_cast<unsigned>(
        std::stoul(bus_id_of(card).substr(5, 2), nullptr, 16));
}

bool below_one_switch(unsigned card, unsigned other)
{
    const settings &is = get_settings();
    return !is.pci.root_ports &&
           (card / cards_per_domain == other / cards_per_domain) &&
           is.is_reached(card, other);
}

/* What is below the same switch, in order. */
std::vector<unsigned> neighbours_of(unsigned card)
{
    std::vector<unsigned> all;
    for (unsigned other = 0; other < get_settings().devices; ++other) {
        if ((other == card) || below_one_switch(card, other)) {
            all.push_back(other);
        }
    }
    return all;
}

/* Buses of cards come in neighbouring pairs, which leaves room for those of
 * bridges below the first of a pair only. The others' are at the beginning. */
unsigned root_bus_of(unsigned first_card)
{
    const unsigned place = first_card % cards_per_domain;
    if (get_settings().pci.root_ports) {
        return bus_of(first_card - place % 2) - 1;
    }
    return (place % 2 == 0) ? bus_of(first_card) - 3 : 3 * (place / 2);
}

std::string address_of(unsigned domain, unsigned bus, unsigned device)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:%02x.0", domain, bus, device);
    return text;
}

/* Adds functions, each below the last one. */
class path_maker {
public:
    explicit path_maker(unsigned card)
        : card_(card), domain_(card / cards_per_domain)
    {}

    void add_bridge(pci_type type, unsigned bus, unsigned device,
                    unsigned secondary, unsigned subordinate)
    {
        const auto &id =
            (type == pci_type::root_port) ? root_port_id : switch_id;
        add({address_of(domain_, bus, device), "", "", type, id[0], id[1],
             bridge_class, static_cast<uint8_t>(bus),
             static_cast<uint8_t>(secondary),
             static_cast<uint8_t>(subordinate)});
    }

    std::vector<pci_function> end()
    {
        const auto device = static_cast<uint16_t>(get_settings().kind->pci_id);
        add({bus_id_of(card_), "", "", pci_type::endpoint, 0x1da3, device,
             0x120000, static_cast<uint8_t>(bus_of(card_))});
        return std::move(functions_);
    }

private:
    void add(pci_function &&added)
    {
        char root[16];
        std::snprintf(root, sizeof(root), "pci%04x:%02x", domain_, added.bus);
        const bool is_first = functions_.empty();
        added.folder =
            (is_first ? root : functions_.back().folder) + "/" + added.address;
        /* As pci_device_group of drivers/iommu/iommu.c: what no port isolates
         * is one group with all that is above. */
        added.group = (is_first || get_settings().pci.acs)
                          ? added.address
                          : functions_.front().address;
        functions_.push_back(std::move(added));
    }

    const unsigned card_;
    const unsigned domain_;
    std::vector<pci_function> functions_;
};

class config_space {
public:
    void put(size_t at, uint64_t value, size_t bytes)
    {
        for (size_t i = 0; i < bytes; ++i) {
            bytes_[at + i] = static_cast<char>(value >> (8 * i));
        }
    }
    std::string take(size_t size) { return bytes_.substr(0, size); }

private:
    std::string bytes_ = std::string(4096, '\0');
};

} // namespace

std::vector<pci_function> pci_path(unsigned card)
{
    const auto neighbours  = neighbours_of(card);
    const unsigned root    = root_bus_of(neighbours.front());
    const unsigned own_bus = bus_of(card);
    path_maker path(card);
    if (get_settings().pci.root_ports) {
        path.add_bridge(pci_type::root_port, root, 1 + 2 * (card % 2), own_bus,
                        own_bus);
        return path.end();
    }
    const unsigned last = bus_of(neighbours.back());
    const auto port     = static_cast<unsigned>(
        std::find(neighbours.begin(), neighbours.end(), card) -
        neighbours.begin());
    path.add_bridge(pci_type::root_port, root, 1, root + 1, last);
    path.add_bridge(pci_type::upstream, root + 1, 0, root + 2, last);
    path.add_bridge(pci_type::downstream, root + 2, port, own_bus, own_bus);
    return path.end();
}

/* Offsets and bits: include/uapi/linux/pci_regs.h. */
std::string pci_config(const pci_function &function)
{
    constexpr uint16_t has_capabilities = 0x10;
    constexpr size_t power              = 0x40; /* the capabilities */
    constexpr size_t express            = 0x60;
    constexpr size_t errors             = 0x100;
    constexpr size_t access             = 0x148;
    /* What ports can redirect, and what Linux has them do where it wants groups
     * to be apart (pci_std_enable_acs): check sources, redirect requests and
     * completions, forward upstream. */
    constexpr uint16_t can_do = 0x5f;
    constexpr uint16_t does   = 0x1d;
    const pci_settings &pci   = get_settings().pci;
    const bool is_port        = (function.type == pci_type::root_port) ||
                         (function.type == pci_type::downstream);

    config_space space;
    space.put(0x00, function.vendor, 2);
    space.put(0x02, function.device, 2);
    space.put(0x06, has_capabilities, 2);
    space.put(0x09, function.class_code, 3);
    if (function.type != pci_type::endpoint) {
        space.put(0x0e, 1, 1);
        space.put(0x18, function.bus, 1);
        space.put(0x19, function.secondary, 1);
        space.put(0x1a, function.subordinate, 1);
    }
    space.put(0x34, power, 1);
    space.put(power, 0x01 | express << 8, 2);
    space.put(express, 0x10, 2);
    space.put(express + 2, 2u | static_cast<unsigned>(function.type) << 4, 2);
    space.put(errors, 0x0001 | 2 << 16 | (is_port ? access : 0) << 20, 4);
    if (is_port) {
        space.put(access, 0x000d | 1 << 16, 4);
        space.put(access + 4, can_do, 2);
        space.put(access + 6, pci.acs ? does : 0, 2);
    }
    return space.take(pci.short_files ? 64 : 4096);
}

bool goes_through_root(unsigned card, unsigned other)
{
    /* No bridge knows the addresses that an IOMMU translates. */
    const pci_settings &pci = get_settings().pci;
    return pci.acs || (pci.iommu && !pci.passthrough) ||
           !below_one_switch(card, other);
}

} // namespace gaudi::emu
