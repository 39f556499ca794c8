/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/asic.h"

#include <algorithm>

namespace gaudi::emu {

namespace {

constexpr asic gaudi2 = {.name           = "gaudi2",
                         .device_type    = "GAUDI2",
                         .card_name      = "HL225",
                         .device_name    = HLTHUNK_DEVICE_GAUDI2,
                         .pci_id         = shim::pci_id_gaudi2,
                         .revision       = 1,
                         .server_type    = 5, /* HLS-2 */
                         .user_queues    = true,
                         .user_page_size = false,
                         .memory         = 96ull << 30,
                         .dram_page      = 48ull << 20,
                         .dram_start     = 0x1001000000000000,
                         .dram_va_end    = 0x1002000000000000,
                         .dram_hints = {0x1001500000000000, 0x1001700000000000},
                         .host       = {0xfff0000000000000, 0xfff0800000000000},
                         .host_huge  = {0xfff0800000000000, 0xfff1000000000000},
                         .edma_mask  = 0xff,
                         .sram_start = 0x1000fffffd000000,
                         .sram_bytes = 0x3000000,
                         .decoder_mask         = 0x3ff,
                         .tpc_mask             = 0x1ffffff,
                         .rotator_mask         = 0x3,
                         .user_interrupts      = 64,
                         .first_user_interrupt = 48,
                         .tpc_interrupt        = 46};

constexpr asic gaudi3 = {.name           = "gaudi3",
                         .device_type    = "GAUDI3",
                         .card_name      = "GAUDI3",
                         .device_name    = HLTHUNK_DEVICE_GAUDI3,
                         .pci_id         = 0x1060,
                         .revision       = 1,
                         .server_type    = 10, /* HLS-3 */
                         .user_queues    = false,
                         .user_page_size = true,
                         .memory         = 128ull << 30,
                         .dram_page      = 32ull << 20,
                         .dram_start     = 0x0201000000000000,
                         .dram_va_end    = 0x0202000000000000,
                         .dram_hints = {0x0201e00000000000, 0x0202000000000000},
                         .host       = {0xff70000000000000, 0xff70800000000000},
                         .host_huge  = {0xfff0000000000000, 0xfff0800000000000},
                         .edma_mask  = 0xff,
                         .sram_start = 0,
                         .sram_bytes = 0, /* all of it is cache */
                         .decoder_mask         = 0x7f7f,
                         .tpc_mask             = UINT64_MAX,
                         .rotator_mask         = 0x77,
                         .user_interrupts      = 256,
                         .first_user_interrupt = 0, /* not known */
                         .tpc_interrupt        = 0xffff};

/* One that device and revision ids tell from the first of its generation, as
 * the vendor's driver does: get_asic_type of habanalabs_drv.c, hl_revision_id
 * of pci_general.h; its name in sysfs: device_type_show of sysfs.c. The newest
 * hlthunk.h that is public has no name for the invalid ones. */
struct variant {
    const char *name;
    const char *device_type;
    uint8_t revision;
    hlthunk_device_name device_name = HLTHUNK_DEVICE_INVALID;
};

constexpr asic variant_of(asic base, const variant &which)
{
    base.name        = which.name;
    base.device_type = which.device_type;
    base.device_name = which.device_name;
    base.revision    = which.revision;
    return base;
}

/* A PCIe card. */
constexpr asic addin_card(asic base, const char *card_name, uint32_t pci_id,
                          const variant &which)
{
    base.card_name   = card_name;
    base.pci_id      = pci_id;
    base.server_type = 0; /* none is known */
    return variant_of(base, which);
}

constexpr asic hl_288(const variant &which)
{
    return addin_card(gaudi2, "HL288", 0x1021, which);
}

constexpr asic hl_338(const variant &which)
{
    return addin_card(gaudi3, "HL338", 0x1063, which);
}

constexpr asic kinds[] = {
    gaudi2,
    variant_of(gaudi2, {"gaudi2b", "GAUDI2B", 2, HLTHUNK_DEVICE_GAUDI2B}),
    variant_of(gaudi2, {"gaudi2c", "GAUDI2C", 3, HLTHUNK_DEVICE_GAUDI2C}),
    variant_of(gaudi2, {"gaudi2d", "GAUDI2D", 4, HLTHUNK_DEVICE_GAUDI2D}),
    variant_of(gaudi2, {"gaudi2e", "GAUDI2E", 5}),
    hl_288({"hl288", "GAUDI2 HL-288", 1}),
    hl_288({"hl288d", "GAUDI2D HL-288", 4}),
    hl_288({"hl288e", "GAUDI2E HL-288", 5}),
    gaudi3,
    variant_of(gaudi3, {"gaudi3d", "GAUDI3D", 4, HLTHUNK_DEVICE_GAUDI3D}),
    variant_of(gaudi3, {"gaudi3e", "GAUDI3E", 5}),
    hl_338({"hl338", "GAUDI3 HL-338", 1}),
    hl_338({"hl338d", "GAUDI3D HL-338", 4}),
    hl_338({"hl338e", "GAUDI3E HL-338", 5})};

} // namespace

const asic *find_asic(const std::string &name)
{
    const auto *found =
        std::find_if(std::begin(kinds), std::end(kinds),
                     [&](const asic &kind) { return kind.name == name; });
    return (found == std::end(kinds)) ? nullptr : found;
}

std::string asic_names()
{
    std::string names;
    for (const asic &kind : kinds) {
        names += (names.empty() ? "" : ", ") + std::string(kind.name);
    }
    return names;
}

} // namespace gaudi::emu
